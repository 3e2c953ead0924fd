// The messages of a conversation on the screen.
import { byId, read } from "./server.js";

const WHY = {
  max_tokens: "cut off at the limit of tokens",
  exceed_context: "cut off, for the context is full",
  repetition: "ended, for it went in circles",
  interrupted: "stopped",
};
const lines = new WeakMap();

export function made(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

function button(action, label) {
  const element = made("button", { type: "button", className: "small" }, label);
  element.dataset.action = action;
  return element;
}

export function show(turn) {
  const mine = turn.role === "user", line = made("li", { className: `turn ${turn.role}` });
  const reasoning = made("details", { className: "reasoning", hidden: true }, made("summary", {}, "Reasoning"), made("div", { className: "plain", dir: "auto" }));
  const actions = made("div", { className: "actions" }, button("copy", "Copy"));
  if (mine) actions.append(button("edit", "Edit"));
  else actions.append(button("retry", "Retry"), button("continue", "Continue"));
  const files = (turn.parts || []).map((part) => part.type === "image_url"
    ? made("img", { src: part.image_url.url, alt: part.name || "picture" }) : made("span", { className: "note" }, `♪ ${part.name || "sound"}`));
  line.append(made("h3", {}, mine ? "You" : turn.model || "Answer"), ...files, reasoning,
    made("div", { className: "text plain", dir: "auto" }), made("p", { className: "counts note" }), actions);
  lines.set(turn, line);
  byId("turns").append(line);
  update(turn);
  return line;
}

export function update(turn) { // what has come of it so far
  const line = lines.get(turn);
  if (!line?.isConnected) return;
  const text = line.querySelector(".text"), reasoning = line.querySelector(".reasoning");
  if (text.textContent !== turn.text) text.textContent = turn.text;
  if (turn.reasoning) {
    reasoning.hidden = false;
    reasoning.lastElementChild.textContent = turn.reasoning;
  }
  const why = WHY[turn.reason] ? [WHY[turn.reason]] : [];
  line.querySelector(".counts").textContent = [turn.counts, ...why, turn.error && `Error: ${turn.error}`].filter(Boolean).join(", ");
  line.querySelector(".counts").classList.toggle("error", Boolean(turn.error));
  const goes = line.querySelector("[data-action=continue]");
  if (goes) goes.hidden = !turn.text || !(WHY[turn.reason] || turn.error) || turn.reason === "exceed_context";
}

export function add(turn, text) { // a piece of a text that comes
  turn.text += text;
  lines.get(turn)?.querySelector(".text").append(text);
}

// Markdown as the server renders and cleans it; where it cannot, the text stays as it is.
export async function render(turns) {
  const written = turns.filter((turn) => turn.role === "assistant" && turn.text);
  if (!written.length) return;
  const texts = written.map((turn) => turn.text);
  const { html } = await read("leap/markdown", { texts }).catch(() => ({ html: null }));
  written.forEach((turn, n) => {
    const text = lines.get(turn)?.querySelector(".text");
    if (!text || html?.[n] == null || turn.text !== texts[n]) return;
    text.classList.remove("plain");
    text.innerHTML = html[n];
    for (const code of text.querySelectorAll("pre")) {
      Object.assign(code, { tabIndex: 0, dir: "ltr" });
      code.after(button("copy-code", "Copy the code"));
    }
    for (const table of text.querySelectorAll("table")) {
      const wide = made("div", { className: "wide", tabIndex: 0, role: "group", ariaLabel: "Table" });
      table.replaceWith(wide);
      wide.append(table);
    }
  });
}

export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = made("textarea", { value: text, className: "unseen" }); // pages that come without TLS have no clipboard
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

const nearEnd = () => byId("end").getBoundingClientRect().top < innerHeight + 120;

export function following(change) { // whoever reads further up stays there
  const follows = nearEnd();
  change();
  if (follows) byId("end").scrollIntoView({ block: "end" });
}
