// Answers with a shape: a schema filled in as a form, and the answer as a table.
import { byId, made } from "./server.js";

const KINDS = {
  text: { type: "string" },
  number: { type: "number" },
  "whole number": { type: "integer" },
  "yes or no": { type: "boolean" },
  "list of texts": { type: "array", items: { type: "string" } },
  "one of": null,
};

function addField() {
  const number = byId("fields").children.length + 1;
  const name = made("input", { ariaLabel: `Name of field ${number}`, placeholder: "name", autocomplete: "off" });
  const kind = made("select", { ariaLabel: `Kind of field ${number}` }, ...Object.keys(KINDS).map((each) => new Option(each, each)));
  const choices = made("input", { ariaLabel: `Choices of field ${number}, with commas between`, placeholder: "red, green", hidden: true });
  const remove = made("button", { type: "button", className: "small", ariaLabel: `Remove field ${number}` }, "×");
  const row = made("li", { className: "row" }, name, kind, choices, remove);
  kind.onchange = () => { choices.hidden = kind.value !== "one of"; };
  remove.onclick = () => { row.remove(); byId("add-field").focus(); };
  byId("fields").append(row);
  return name;
}

// The schema that answers shall have, null for none. Throws what is wrong with it.
export function schema() {
  if (!byId("as-data").checked) return null;
  const written = byId("schema").value.trim();
  if (written) {
    try {
      return JSON.parse(written);
    } catch (error) {
      throw new Error(`The JSON schema cannot be read: ${error.message}`);
    }
  }
  const properties = {};
  for (const row of byId("fields").children) {
    const [name, kind, choices] = row.children, title = name.value.trim();
    if (!title) continue;
    const values = choices.value.split(",").map((each) => each.trim()).filter(Boolean);
    if (kind.value === "one of" && !values.length) throw new Error(`The field ${title} has no choices.`);
    properties[title] = KINDS[kind.value] || { enum: values };
  }
  if (!Object.keys(properties).length) throw new Error("The answer shall be data: name a field of it, or give a JSON schema.");
  const one = { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
  if (!byId("several").checked) return one;
  return { type: "object", properties: { rows: { type: "array", items: one } }, required: ["rows"], additionalProperties: false };
}

// An answer that is a JSON object or list as a table, null for any other.
export function tableOf(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (value === null || typeof value !== "object") return null;
  const only = Object.values(value);
  if (!Array.isArray(value) && only.length === 1 && Array.isArray(only[0])) [value] = only; // {"rows": [...]}
  const isRow = (each) => each !== null && typeof each === "object" && !Array.isArray(each);
  const source = made("details", {}, made("summary", {}, "As JSON"), made("pre", { tabIndex: 0, dir: "ltr" }, text));
  return made("div", {}, Array.isArray(value) && value.length && value.every(isRow) ? rowsTable(value) : cellOf(value), source);
}

function rowsTable(rows) {
  const names = [...new Set(rows.flatMap(Object.keys))];
  const head = made("tr", {}, ...names.map((name) => made("th", { scope: "col" }, name)));
  const body = rows.map((row) => made("tr", {}, ...names.map((name) => made("td", {}, cellOf(row[name])))));
  return made("table", {}, made("thead", {}, head), made("tbody", {}, ...body));
}

function cellOf(value) {
  if (value === null || value === undefined) return "–";
  if (Array.isArray(value)) return made("ul", {}, ...value.map((each) => made("li", {}, cellOf(each))));
  if (typeof value !== "object") return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
  const lines = Object.entries(value).map(([name, each]) => made("tr", {}, made("th", { scope: "row" }, name), made("td", {}, cellOf(each))));
  return made("table", {}, made("tbody", {}, ...lines));
}

export function beginShape() {
  byId("add-field").addEventListener("click", () => addField().focus());
  byId("as-data").addEventListener("change", () => {
    byId("shape").hidden = !byId("as-data").checked;
    if (!byId("fields").children.length) addField();
  });
}
