// The conversation: what is sent, what comes, and what can be done with both.
import { ask, byId, events, read } from "./server.js";
import { all, forget, fresh, keep } from "./kept.js";
import { add, copy, following, made, render, show, update } from "./turns.js";

const NUMBERS = ["temperature", "top_p", "seed", "max_tokens"];
let talk = fresh(), running = null, editing = null, attached = [], abilities = [];

function messages() {
  const system = byId("system").value.trim();
  const list = system ? [{ role: "system", content: system }] : [];
  for (const turn of talk.turns) {
    if (turn.role === "assistant") {
      if (turn.text) list.push({ role: "assistant", content: turn.text });
    } else if (turn.parts?.length) {
      const parts = turn.parts.map(({ name, ...part }) => part);
      list.push({ role: "user", content: [...parts, ...(turn.text ? [{ type: "text", text: turn.text }] : [])] });
    } else list.push({ role: "user", content: turn.text });
  }
  return list;
}

function sampling() {
  const filled = NUMBERS.filter((name) => byId(name).value !== "");
  return Object.fromEntries(filled.map((name) => [name, Number(byId(name).value)]));
}

function tell(text) {
  byId("refused").textContent = text;
}

function store(of) {
  try {
    keep(of);
  } catch {
    tell("This browser has no room left to keep the conversation; delete others.");
  }
  list();
}

async function answer() {
  if (running) return;
  const mine = talk, model = byId("model").value, begun = performance.now();
  const turn = { role: "assistant", text: "", model }, stop = new AbortController();
  const body = { model, stream: true, stream_options: { include_usage: true }, ...sampling(), messages: messages() };
  running = stop;
  mine.turns.push(turn);
  byId("stop").hidden = false;
  byId("turns").setAttribute("aria-busy", "true");
  byId("spoken").textContent = "";
  tell("");
  show(turn);
  byId("end").scrollIntoView({ block: "end" });
  let tokens = null;
  try {
    for await (const event of events(await ask("v1/chat/completions", body, stop.signal))) {
      const delta = event.choices?.[0]?.delta || {};
      if (event.usage) tokens = event.usage.completion_tokens;
      turn.reason = event.leap?.finish_reason || turn.reason;
      if (delta.reasoning_content) {
        turn.reasoning = (turn.reasoning || "") + delta.reasoning_content;
        following(() => update(turn));
      }
      if (delta.content) following(() => add(turn, delta.content));
    }
  } catch (error) {
    if (error.name === "AbortError") turn.reason = "interrupted";
    else turn.error = error.message;
  }
  const seconds = `${((performance.now() - begun) / 1000).toFixed(1)} s`;
  turn.counts = tokens === null ? seconds : `${tokens} tokens, ${seconds}`;
  running = null;
  byId("stop").hidden = true;
  byId("turns").removeAttribute("aria-busy");
  following(() => update(turn));
  if (mine === talk) byId("spoken").textContent = `Answer: ${turn.text.slice(0, 1000)} ${turn.error ? `Error: ${turn.error}` : ""}`;
  store(mine);
  await render([turn]);
  following(() => {});
}

function say(text, parts = []) {
  if (running) return tell("An answer is coming: Esc stops it.");
  if (!text.trim() && !parts.length) return;
  if (!byId("model").value) return tell("There is no model to ask.");
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
  const begun = !running;
  const done = say(byId("prompt").value, attached);
  if (begun && done) {
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
  leaveEdit();
  redraw();
  render(talk.turns);
  list();
  byId("prompt").focus();
}

function leaveEdit() {
  editing = null;
  byId("editing").hidden = true;
}

function list() {
  const rows = all().map((each) => {
    const row = made("li", {}, made("button", { type: "button", className: "title", dir: "auto" }, each.title));
    row.firstChild.ariaCurrent = each.id === talk.id ? "true" : null;
    for (const action of ["Rename", "Delete"]) row.append(made("button", { type: "button", className: "small", ariaLabel: `${action} ${each.title}` }, action));
    const [title, rename, remove] = row.children;
    title.onclick = () => { if (each.id !== talk.id) open(each); };
    rename.onclick = () => {
      const name = prompt("Title", each.title);
      if (!name) return;
      const renamed = each.id === talk.id ? talk : each;
      renamed.title = name;
      store(renamed);
    };
    remove.onclick = () => {
      if (!confirm(`Delete “${each.title}”?`)) return;
      forget(each.id);
      if (each.id === talk.id) open(fresh());
      else list();
    };
    return row;
  });
  byId("conversations").replaceChildren(...rows);
  byId("kept").hidden = !rows.length;
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
  retry: (turn, _button, n) => {
    if (running) return;
    talk.turns.length = n;
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

function attach(parts) {
  attached = parts;
  byId("attached").replaceChildren(...parts.map((part) => {
    const remove = made("button", { type: "button", className: "small", ariaLabel: `Leave out ${part.name}` }, "×");
    remove.onclick = () => { attach(attached.filter((each) => each !== part)); byId("prompt").focus(); };
    return made("li", {}, part.name, " ", remove);
  }));
}

async function heard(file) { // any sound that the browser knows, as the samples that models take
  const rate = 16000, sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(await file.arrayBuffer());
  const channels = Array.from({ length: sound.numberOfChannels }, (_, n) => sound.getChannelData(n));
  const samples = channels[0].map((_, n) => channels.reduce((sum, channel) => sum + channel[n], 0) / channels.length);
  const url = await fileAsUrl(new Blob([samples]));
  return { type: "input_audio", input_audio: { data: url.slice(url.indexOf(",") + 1), format: "pcm_f32le", sample_rate: rate } };
}

function fileAsUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = Object.assign(new FileReader(), { onload: () => resolve(reader.result), onerror: () => reject(reader.error) });
    reader.readAsDataURL(file);
  });
}

async function take(files) {
  tell("");
  for (const file of files) {
    const [kind] = file.type.split("/"), name = file.name || kind, can = { image: "vision", audio: "audio" }[kind];
    if (!can || !abilities.includes(can)) {
      tell(`${byId("model").value} takes no such file: ${name}`);
      continue;
    }
    let part;
    try {
      part = kind === "audio" ? await heard(file) : { type: "image_url", image_url: { url: await fileAsUrl(file) } };
    } catch {
      tell(`This browser cannot read ${name}.`);
      continue;
    }
    attach([...attached, { ...part, name }]);
  }
}

export async function learn() { // what the chosen model takes
  const model = byId("model").value;
  if (!model) return;
  const shown = await read("api/show", { model }).catch(() => ({}));
  if (model !== byId("model").value) return;
  abilities = shown.capabilities || [];
  tell(abilities.includes("embedding") ? `${model} makes vectors and answers nothing.` : "");
  const kinds = [abilities.includes("vision") && "image/*", abilities.includes("audio") && "audio/*"].filter(Boolean);
  byId("attach").hidden = !kinds.length;
  byId("file").accept = kinds.join();
  const words = kinds.map((kind) => (kind === "image/*" ? "pictures" : "sound")).join(" and ");
  byId("keys").textContent = `Enter sends, Shift-Enter breaks the line, Esc stops.${words ? ` Drop or paste ${words}.` : ""}`;
}

export function begin() {
  byId("ask").addEventListener("submit", submit);
  byId("stop").addEventListener("click", stop);
  byId("turns").addEventListener("click", act);
  byId("new").addEventListener("click", () => open(fresh()));
  byId("leave-edit").addEventListener("click", () => { leaveEdit(); byId("prompt").value = ""; attach([]); byId("prompt").focus(); });
  byId("settings-form").addEventListener("submit", (event) => event.preventDefault());
  byId("model").addEventListener("change", learn);
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return; // an input method's Enter chooses a word
    event.preventDefault();
    byId("ask").requestSubmit();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !byId("key-dialog").open) stop();
  });
  byId("file").addEventListener("change", () => { take([...byId("file").files]); byId("file").value = ""; });
  byId("prompt").addEventListener("paste", (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    take([...event.clipboardData.files]);
  });
  for (const kind of ["dragover", "drop"]) {
    byId("talk").addEventListener(kind, (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      if (kind === "drop") take([...event.dataTransfer.files]);
    });
  }
  addEventListener("pagehide", () => {
    if (!running) return;
    talk.turns[talk.turns.length - 1].reason = "interrupted";
    store(talk);
  });
  list();
}
