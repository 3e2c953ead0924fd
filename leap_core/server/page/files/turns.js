// The messages of a conversation on the screen.
import { byId, made, read } from "./server.js";
import { tableOf } from "./shape.js";
import { written } from "./tools.js";

export const WHY = {
  max_tokens: "cut off at the limit of tokens",
  exceed_context: "cut off, for the context is full",
  repetition: "stopped: it repeats itself",
  interrupted: "stopped",
};
const LIVE_MS = 400; // between two renderings of an answer that comes
const LONGEST_RENDERED = 100000; // characters that the server renders
const lines = new WeakMap(), live = new WeakMap(), sounds = new WeakMap();

export const placeOf = (turn) => lines.get(turn)?.querySelector(".calls");

function button(action, label) {
  const element = made("button", { type: "button", className: "small" }, label);
  element.dataset.action = action;
  return element;
}

function folded(className, label, ...content) {
  return made("details", { className }, made("summary", {}, label), ...content);
}

export function show(turn) {
  const line = made("li", { className: `turn ${turn.role}` });
  if (turn.role === "tool") {
    line.append(made("h3", {}, `${turn.name || "A tool"} ${turn.failed ? "failed" : "answered"}`),
      folded("result", turn.text.split("\n")[0].slice(0, 100) || "nothing", made("pre", { tabIndex: 0, dir: "ltr" }, turn.text)));
  } else {
    const mine = turn.role === "user", reasoning = folded("reasoning", "Reasoning", made("div", { className: "plain", dir: "auto" }));
    reasoning.hidden = true;
    const actions = made("div", { className: "actions" }, button("copy", "Copy"));
    if (mine) actions.append(button("edit", "Edit"));
    else actions.append(button("retry", "Retry"), button("continue", "Continue"));
    const files = (turn.parts || []).map((part) => part.type === "image_url"
      ? made("img", { src: part.image_url.url, alt: part.name || "picture" }) : made("span", { className: "note" }, part.type === "file" ? `▤ ${part.file.filename}` : `♪ ${part.name || "sound"}`));
    line.append(made("h3", {}, mine ? "You" : turn.model || "Answer"), ...files, reasoning,
      made("div", { className: "text plain", dir: "auto" }), made("div", { className: "calls" }), made("div", { className: "more" }),
      made("p", { className: "counts note" }), actions);
  }
  lines.set(turn, line);
  byId("turns").append(line);
  if (turn.role !== "tool") {
    line.querySelector(".text").textContent = turn.text;
    update(turn);
  }
  return line;
}

export function update(turn) { // what has come of it beside its text
  const line = lines.get(turn);
  if (!line?.isConnected) return;
  const reasoning = line.querySelector(".reasoning");
  if (turn.reasoning) {
    reasoning.hidden = false;
    reasoning.lastElementChild.textContent = turn.reasoning;
  }
  const calls = line.querySelector(".calls");
  for (const call of (turn.calls || []).slice(calls.querySelectorAll(".call").length)) {
    calls.append(made("pre", { className: "call", tabIndex: 0, dir: "ltr", ariaLabel: "Call of a tool", role: "group" }, written(call)));
  }
  more(turn, line.querySelector(".more"));
  const why = WHY[turn.reason] ? [WHY[turn.reason]] : [];
  line.querySelector(".counts").textContent = [turn.counts, turn.note, ...why, turn.error && `Error: ${turn.error}`].filter(Boolean).join(", ");
  line.querySelector(".counts").classList.toggle("error", Boolean(turn.error));
  const goes = line.querySelector("[data-action=continue]");
  if (goes) goes.hidden = !turn.text || !(WHY[turn.reason] || turn.error) || turn.reason === "exceed_context";
}

function more(turn, place) { // sound and sources, once
  const url = sounds.get(turn);
  if (url && !place.querySelector("audio")) place.append(made("audio", { controls: true, src: url, ariaLabel: "The answer, spoken" }));
  if (!turn.sources?.length || place.querySelector(".sources")) return;
  const items = turn.sources.map((source) => {
    const where = `${source.path}, ${source.kind === "pdf" ? "page" : "line"} ${source.first}`;
    return made("li", { value: source.number }, folded("", [where, source.heading].filter(Boolean).join(": "), made("div", { className: "plain", dir: "auto" }, source.text)));
  });
  place.append(folded("sources", `Sources (${items.length})`, made("ol", {}, ...items)));
}

export function keepSound(turn, url) {
  if (url) sounds.set(turn, url);
}

export function add(turn, text) { // a piece of a text that comes: plain at first, rendered now and then
  turn.text += text;
  const place = lines.get(turn)?.querySelector(".text");
  if (!place) return;
  (place.querySelector(".tail") ?? place.appendChild(made("span", { className: "tail plain" }))).append(text);
  if (!live.has(turn)) live.set(turn, { pause: LIVE_MS });
  const state = live.get(turn);
  if (!state.waits && turn.text.length <= LONGEST_RENDERED) state.waits = setTimeout(() => renderSoFar(turn, state, place), state.pause);
}

async function renderSoFar(turn, state, place) {
  const text = turn.text, begun = performance.now(), [html] = await rendered([text]);
  state.pause = Math.max(LIVE_MS, 4 * (performance.now() - begun)); // a busy server is asked less often
  state.waits = 0;
  if (state.ended || html == null || isHeld(place)) return;
  following(() => {
    place.classList.remove("plain");
    place.innerHTML = html;
    lastBlock(place, text).append(made("span", { className: "tail plain" }, turn.text.slice(text.length)));
  });
}

function lastBlock(place, text) { // what is not rendered yet goes on in the last paragraph
  let block = place;
  while (!text.endsWith("\n\n") && block.lastElementChild?.matches("p, ul, ol, li, blockquote, h4, h5, h6")) block = block.lastElementChild;
  return block;
}

const isHeld = (place) => place.contains(document.activeElement) // what somebody marks or has reached stays
  || (!getSelection().isCollapsed && place.contains(getSelection().anchorNode));

async function rendered(texts) {
  const { html } = await read("leap/markdown", { texts }).catch(() => ({ html: [] }));
  return html;
}

// Markdown as the server renders and cleans it; where it cannot, the text stays as it is.
export async function render(turns) {
  const answers = turns.filter((turn) => turn.role === "assistant" && turn.text);
  for (const turn of answers.filter((each) => live.has(each))) {
    clearTimeout(live.get(turn).waits);
    live.get(turn).ended = true;
  }
  const shown = answers.filter((turn) => !asTable(turn));
  if (!shown.length) return;
  const texts = shown.map((turn) => turn.text), html = await rendered(texts);
  shown.forEach((turn, n) => {
    const text = lines.get(turn)?.querySelector(".text");
    if (!text || html[n] == null || turn.text !== texts[n]) return;
    text.classList.remove("plain");
    text.innerHTML = html[n];
    for (const code of text.querySelectorAll("pre")) {
      Object.assign(code, { tabIndex: 0, dir: "ltr" });
      code.after(button("copy-code", "Copy the code"));
    }
    for (const table of text.querySelectorAll("table")) {
      const wide = made("div", { className: "wide" });
      table.replaceWith(wide);
      wide.append(table);
      reachable(wide);
    }
  });
}

function reachable(wide) { // what is scrolled sideways is reached by keyboard
  Object.assign(wide, { tabIndex: 0, role: "group", ariaLabel: "Table" });
}

function asTable(turn) {
  const text = lines.get(turn)?.querySelector(".text"), table = text && tableOf(turn.text);
  if (!table) return false;
  text.classList.remove("plain");
  table.classList.add("wide");
  reachable(table);
  text.replaceChildren(table);
  return true;
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
