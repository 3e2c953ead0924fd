// The conversation: what is sent, what comes, and what can be done with both.
import { ask, byId, events, read } from "./server.js";
import { fresh, keep, keepSessions, remember, remembered } from "./kept.js";
import { attach, beginAttachments, files, learnt, recording } from "./attachments.js";
import { list, save } from "./list.js";
import { messagesOf } from "./messages.js";
import { beginShape, schema } from "./shape.js";
import { chosenTools, offerTools, runCalls } from "./tools.js";
import { add, copy, following, keepSound, placeOf, render, show, update, WHY } from "./turns.js";
import { SPOKEN, Voice } from "./voice.js";

const NUMBERS = ["temperature", "top_p", "seed", "max_tokens"];
let talk = fresh(), running = null, editing = null;

const system = () => byId("system").value.trim();

function tell(text) {
  byId("refused").textContent = text;
}

async function store(of) {
  try {
    if (of === talk) of.system = system();
    const warning = await keep(of, byId("model").value || null);
    if (warning) tell(warning);
    if (of === talk) remember(talk);
  } catch (error) {
    tell(of.session === undefined ? "This browser has no room left to keep the conversation; delete others."
      : `The conversation is not kept: ${error.message}`);
  }
  await relist();
}

const relist = () => list(() => talk, (other) => open(other || fresh()), tell);

function sampling() {
  const filled = NUMBERS.filter((name) => byId(name).value !== "");
  return Object.fromEntries(filled.map((name) => [name, Number(byId(name).value)]));
}

// Passages for the question that was asked last, and what to note below the answer.
async function passages(turns, model, signal) {
  const index = byId("index").value, asked = turns.findLast((turn) => turn.role === "user");
  if (!index || !asked?.text) return {};
  return read("leap/passages", { index, question: asked.text, model }, { signal });
}

// The answer with the numbers of the passages that support it.
async function cite(turn, turns, signal) {
  const question = turns.findLast((each) => each.role === "user").text;
  const answered = { question, answer: turn.text, sources: turn.sources };
  const { text, note } = await read("leap/cited", answered, { signal }).catch((error) => {
    if (error.name === "AbortError") throw error;
    return { text: turn.text, note: `not cited: ${error.message}` };
  });
  Object.assign(turn, { text, note: [turn.note, note].filter(Boolean).join(", ") });
}

function request(turns, model, shape, found) {
  const speaks = byId("speak").checked && !byId("speaking").hidden, own = system();
  const prompts = [speaks && (own || found.system) && SPOKEN, own, found.system].filter(Boolean);
  const body = { model, stream: true, stream_options: { include_usage: true }, ...sampling(), messages: messagesOf(turns, prompts.join("\n\n")) };
  const tools = chosenTools();
  if (tools.length) body.tools = tools;
  if (shape) body.response_format = { type: "json_schema", json_schema: { name: "answer", schema: shape, strict: true } };
  if (byId("reason").checked && !byId("reasons").hidden) body.enable_thinking = true;
  if (speaks) Object.assign(body, { modalities: ["text", "audio"], audio: { format: "wav" } });
  return body;
}

async function answer() {
  if (running) return;
  let shape;
  try {
    shape = schema();
  } catch (error) { return tell(error.message); }
  const mine = talk, model = byId("model").value, stop = new AbortController();
  running = stop;
  byId("stop").hidden = false;
  byId("turns").setAttribute("aria-busy", "true");
  byId("spoken").textContent = "";
  tell("");
  let turn, found = null;
  for (let round = 0, goes = true; goes; round++) {
    turn = { role: "assistant", text: "", model };
    const before = [...mine.turns];
    mine.turns.push(turn);
    if (mine === talk) show(turn);
    if (mine === talk && !round) byId("end").scrollIntoView({ block: "end" });
    goes = false;
    try {
      found ??= await passages(before, model, stop.signal);
      Object.assign(turn, { sources: found.sources, note: found.note });
      await generate(turn, request(before, model, shape, found), stop.signal);
      goes = Boolean(turn.calls) && await runCalls(turn, round, placeOf(turn), stop.signal, (result) => {
        mine.turns.push(result);
        if (mine === talk) following(() => show(result));
      });
      if (!goes && turn.sources?.length && turn.text) await cite(turn, before, stop.signal);
      if (stop.signal.aborted) turn.reason = "interrupted";
    } catch (error) {
      if (error.name === "AbortError") turn.reason = "interrupted";
      else turn.error = error.message;
    }
    following(() => update(turn));
    if (goes) render([turn]);
  }
  running = null;
  byId("stop").hidden = true;
  byId("turns").removeAttribute("aria-busy");
  const ending = [turn.text.slice(0, 1000), WHY[turn.reason], turn.error && `Error: ${turn.error}`].filter(Boolean).join(" ");
  if (mine === talk) byId("spoken").textContent = `Answer: ${ending}`;
  store(mine);
  await render([turn]);
  following(() => {});
}

// One reply of the model into its turn. Throws what it failed with; what came until then stays.
async function generate(turn, body, signal) {
  const begun = performance.now(), voice = body.modalities ? new Voice() : null;
  let tokens = null, done = false;
  try {
    for await (const event of events(await ask("v1/chat/completions", body, { signal }))) {
      const delta = event.choices?.[0]?.delta || {}, text = delta.content || delta.audio?.transcript;
      if (event.usage) tokens = event.usage.completion_tokens;
      turn.reason = event.leap?.finish_reason || turn.reason;
      if (delta.reasoning_content) turn.reasoning = (turn.reasoning || "") + delta.reasoning_content;
      if (delta.tool_calls) turn.calls = [...(turn.calls || []), ...delta.tool_calls.map(({ index, ...call }) => call)];
      if (delta.reasoning_content || delta.tool_calls) following(() => update(turn));
      if (delta.audio?.data) voice?.add(delta.audio.data);
      if (text) following(() => add(turn, text));
    }
    done = true;
  } finally {
    const seconds = `${((performance.now() - begun) / 1000).toFixed(1)} s`;
    turn.counts = tokens === null ? seconds : `${tokens} tokens, ${seconds}`;
    voice?.end(!done);
    keepSound(turn, voice?.url);
  }
}

function say(text, parts = []) {
  if (running) return tell("An answer is coming: Esc stops it.");
  if (recording()) return tell("The microphone is on: stop recording first.");
  if (!text.trim() && !parts.length) return;
  if (!byId("model").value) return tell("There is no model to ask.");
  try {
    schema();
  } catch (error) { return tell(error.message); }
  if (editing !== null) {
    talk.turns.length = editing;
    redraw();
  }
  const turn = { role: "user", text, ...(parts.length ? { parts } : {}) };
  talk.turns.push(turn);
  show(turn);
  store(talk);
  return answer();
}

function submit(event) {
  event.preventDefault();
  const done = say(byId("prompt").value, files());
  if (done) {
    byId("prompt").value = "";
    attach([]);
    leaveEdit();
  }
  byId("prompt").focus();
}

export function stop() {
  if (!running) return;
  byId("prompt").focus();
  running.abort();
}

function redraw() {
  byId("turns").replaceChildren();
  talk.turns.forEach(show);
}

function open(other) {
  stop();
  talk = other;
  if (other.system !== undefined) byId("system").value = other.system;
  remember(talk);
  leaveEdit();
  redraw();
  render(talk.turns);
  relist();
  byId("prompt").focus();
}

function leaveEdit() {
  editing = null;
  byId("editing").hidden = true;
}

const ACTIONS = {
  copy: (turn) => copy(turn.text),
  "copy-code": (_turn, button) => copy(button.previousElementSibling.textContent),
  edit: (turn, _button, n) => {
    if (running) return;
    editing = n;
    byId("prompt").value = turn.text;
    attach(turn.parts || []);
    byId("editing").hidden = false;
    byId("prompt").focus();
  },
  retry: (_turn, _button, n) => {
    if (running) return;
    talk.turns.length = talk.turns.findLastIndex((turn, m) => m < n && turn.role === "user") + 1; // with the calls before it
    redraw();
    render(talk.turns);
    byId("prompt").focus();
    return answer();
  },
  continue: () => say("Continue."),
};

async function act(event) {
  const button = event.target.closest("button[data-action]"), line = button?.closest(".turn");
  if (!button) return;
  const n = [...byId("turns").children].indexOf(line), label = button.textContent, action = button.dataset.action;
  try {
    const done = ACTIONS[action](talk.turns[n], button, n);
    if (!action.startsWith("copy")) return;
    await done;
    button.textContent = "Copied";
    byId("spoken").textContent = "Copied";
  } catch {
    button.textContent = "This browser does not let pages copy";
  }
  setTimeout(() => { button.textContent = label; }, 1500);
}

export async function learn() { // what the chosen model takes
  const model = byId("model").value;
  if (!model) return;
  const shown = await read("api/show", { model }).catch(() => ({}));
  if (model !== byId("model").value) return;
  const abilities = shown.capabilities || [];
  tell(abilities.includes("embedding") ? `${model} makes vectors and answers nothing.` : "");
  byId("reasons").hidden = !abilities.includes("thinking");
  byId("speaking").hidden = !abilities.includes("speech");
  learnt(abilities);
}

export function offer(about) { // what the server lets the page do
  keepSessions(about.sessions);
  if (!talk.turns.length) {
    talk = fresh();
    remembered().then((before) => { if (before && !talk.turns.length) open(before); }).catch((error) => tell(error.message));
  }
  byId("kept-where").textContent = about.sessions
    ? "New conversations are sessions of leap: leap chat -c continues the last one. Those without “session” are in this browser alone."
    : "They are on this computer alone, until you delete them.";
  offerTools(about.tools, about.rounds);
  byId("searched").hidden = !about.indexes.length;
  byId("index").replaceChildren(new Option("none", ""), ...about.indexes.map((name) => new Option(name, name)));
  relist();
}

export function begin() {
  byId("ask").addEventListener("submit", submit);
  byId("stop").addEventListener("click", stop);
  byId("turns").addEventListener("click", act);
  byId("new").addEventListener("click", () => open(fresh()));
  byId("leave-edit").addEventListener("click", () => { leaveEdit(); byId("prompt").value = ""; attach([]); byId("prompt").focus(); });
  byId("settings-form").addEventListener("submit", (event) => event.preventDefault());
  byId("model").addEventListener("change", learn);
  for (const kind of ["markdown", "json"]) {
    byId(`save-${kind}`).addEventListener("click", () => (talk.turns.length ? save(talk, system(), kind) : tell("Nothing was said yet.")));
  }
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return; // an input method's Enter chooses a word
    event.preventDefault();
    byId("ask").requestSubmit();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) stop();
  });
  addEventListener("pagehide", () => {
    if (!running) return;
    talk.turns[talk.turns.length - 1].reason = "interrupted";
    store(talk);
  });
  beginAttachments(tell);
  beginShape();
  relist();
}
