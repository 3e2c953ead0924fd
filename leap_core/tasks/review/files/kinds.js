// What a value may be, by the schema, and a person's text read as such a value. Values stay JSON text, so that no number
// loses a digit here.

const PARTS = (pointer) => pointer.split("/").slice(1).map((part) => part.replace(/~1/g, "/").replace(/~0/g, "~"));
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

// The schema that references lead to; of several, the only one that is more than null.
function resolved(schema, root) {
  for (let step = 0; step < 8 && schema && typeof schema === "object"; step += 1) {
    const options = [...(schema.anyOf || []), ...(schema.oneOf || [])];
    const real = options.filter((each) => each?.type !== "null");
    if (typeof schema.$ref === "string" && schema.$ref.startsWith("#/")) {
      schema = PARTS(schema.$ref).reduce((part, name) => part?.[name], root);
    } else if (real.length === 1) {
      schema = real.length < options.length ? { ...real[0], nullable: true } : real[0];
    } else {
      break;
    }
  }
  return schema && typeof schema === "object" ? schema : {};
}

function schemaAt(schema, pointer) {
  let part = resolved(schema, schema);
  for (const name of PARTS(pointer)) {
    const inner = part.properties && Object.hasOwn(part.properties, name) ? part.properties[name] : undefined;
    part = resolved(inner ?? (/^\d+$/.test(name) ? part.items : undefined) ?? part.additionalProperties, schema);
  }
  return part;
}

const typeOf = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value);

// { types, choices }: the JSON types that a value may have, and the only values as JSON texts where they are counted.
function kindOf(schema, entry) {
  const here = schemaAt(schema, entry.pointer);
  let types = [here.type || []].flat();
  const options = here.anyOf || here.oneOf || [];
  if (!types.length) types = [...new Set(options.flatMap((each) => resolved(each, schema).type || []))];
  if (!types.length && entry.how !== "absent" && entry.value !== null) types = [typeOf(entry.value)];
  if (here.nullable && types.length && !types.includes("null")) types = [...types, "null"];
  const listed = here.enum || (Object.hasOwn(here, "const") ? [here.const] : null);
  const losesDigits = listed?.some((each) => Number.isInteger(each) && !Number.isSafeInteger(each));
  let choices = listed && !losesDigits ? listed.map((each) => JSON.stringify(each)) : null;
  const plain = types.filter((each) => each !== "null");
  if (!choices && plain.length === 1 && plain[0] === "boolean") choices = ["true", "false"];
  if (choices && types.includes("null") && !choices.includes("null")) choices.push("null");
  return { types, plain, choices };
}

const NAMES = { string: "text", number: "a number", integer: "a whole number", boolean: "true or false", object: "a JSON object", array: "a JSON list", null: "null" };
const called = (kind) => kind.types.map((each) => NAMES[each] || each).join(" or ") || "any JSON";

// A person's text as JSON text. Throws an Error that says what is wanted.
function readTyped(typed, kind) {
  const [only, ...more] = kind.plain;
  const text = typed.trim();
  if (only === "string" && !more.length) return JSON.stringify(typed);
  if (kind.types.includes("null") && text === "null") return "null";
  if ((only === "number" || only === "integer") && !more.length) {
    if (!NUMBER.test(text) || !Number.isFinite(Number(text))) throw new Error(`“${text}” is not ${NAMES[only]}, such as ${only === "integer" ? "12" : "12.5"}`);
    if (only === "integer" && !/^-?\d+$/.test(text)) throw new Error(`“${text}” is not a whole number`);
    return text;
  }
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    if (kind.types.includes("string")) return JSON.stringify(typed);
    throw new Error(`This is not JSON; expected: ${called(kind)}`);
  }
  const type = typeOf(value);
  const fits = !kind.types.length || kind.types.includes(type) || (type === "number" && kind.types.includes("integer") && Number.isInteger(value));
  if (!fits) throw new Error(`This is ${NAMES[type]}; expected: ${called(kind)}`);
  return text.replace(/[\r\n]+/g, " ");
}
