// What the server holds and does: its models, their speed, and its jobs; asked for every two seconds.
import { begin, learn, offer } from "./conversation.js";
import { beginReader, offerGuides } from "./reader.js";
import { ask, byId, read } from "./server.js";

const REFRESH_MS = 2000, POINTS = 150; // five minutes
const LISTED_EVERY = 5; // refreshes: models that are not loaded are looked for on the disk
const ENDED = ["succeeded", "failed", "cancelled"];
const speeds = [];
let served = false; // whether a model was ever seen: what was asked and answered stays while a server is away
let shownAt = -Infinity; // when an error was shown
let counted = null; // tokens of all answers, and when they were counted
let offered = [], refreshes = 0, loaded = ""; // models that could be, and those that were at the last look

function row(table, cells) {
  const line = document.createElement("tr"), heads = byId(table).closest("table").tHead.rows[0].cells;
  for (const [n, cell] of cells.entries()) {
    const field = document.createElement("td");
    field.dataset.label = heads[n].textContent;
    field.append(cell instanceof Node ? cell : String(cell ?? "–"));
    line.append(field);
  }
  return line;
}

// Rows stay where they are, so that a click or a selection is never lost.
function inPlace(table, items, idOf, make, change) {
  const rows = new Map([...table.rows].map((line) => [line.dataset.id, line]));
  items.forEach((item, place) => {
    let line = rows.get(idOf(item));
    rows.delete(idOf(item));
    if (!line) {
      line = make(item);
      line.dataset.id = idOf(item);
    }
    if (table.rows[place] !== line) table.insertBefore(line, table.rows[place] || null);
    const now = JSON.stringify(item);
    if (line.dataset.shown === now) return;
    line.dataset.shown = now;
    change(line, item);
  });
  for (const line of rows.values()) line.remove();
}

function textButton(text, label, does) {
  const button = document.createElement("button");
  button.textContent = text;
  button.setAttribute("aria-label", label);
  button.onclick = () => {
    button.setAttribute("aria-disabled", "true");
    does().then(refresh).catch(tell).finally(() => button.removeAttribute("aria-disabled"));
  };
  return button;
}

function showModels(models) {
  const there = new Set(models.map((model) => model.model));
  const away = offered.filter((model) => !model.loaded && !there.has(model.id));
  served ||= models.length + away.length > 0;
  for (const part of document.querySelectorAll(".of-models")) part.hidden = !served;
  const rows = [...models, ...away.map((model) => ({ model: model.id, state: "not loaded", unloaded: true }))];
  inPlace(byId("models"), rows, (model) => model.model, (model) => row("models", [model.model, "", "", "", "", "", ""]), (line, model) => {
    const slots = model.unloaded ? "–" : `${model.slots_in_use} of ${model.slots}`;
    const sum = (name) => model.reading.reduce((all, each) => all + each[name], 0);
    const state = model.reading?.length ? `reads ${sum("processed")} of ${sum("total")} tokens` : model.state;
    const levels = Object.entries(model.waiting_by_level || {}).filter(([, count]) => count).map(([level, count]) => `${count} ${level}`);
    const waiting = model.waiting && levels.length ? levels.join(", ") : model.waiting;
    [state, slots, waiting, model.tokens_per_second, model.context_size].forEach((text, n) => {
      line.cells[n + 1].textContent = text ?? "–";
    });
    const verb = model.unloaded ? "Load" : model.on_demand ? "Unload" : "", cell = line.cells[6];
    if (cell.textContent === verb) return;
    const held = cell.contains(document.activeElement), body = { model: model.model, ...(model.unloaded ? {} : { keep_alive: 0 }) };
    cell.replaceChildren(...(verb ? [textButton(verb, `${verb} ${model.model}`, () => ask("api/generate", body))] : []));
    if (held) cell.firstElementChild?.focus();
  });
  choose([...models.filter((model) => !model.embedding).map((model) => [model.model, model.model]),
    ...away.filter((model) => model.leap.kind !== "embedding").map((model) => [model.id, `${model.id} (not loaded)`])]);
}

function choose(names) { // the chosen one stays, even where it is gone for a while
  const choice = byId("model"), chosen = choice.value;
  if (chosen && !names.some(([name]) => name === chosen)) names.unshift([chosen, `${chosen} (away)`]);
  const now = JSON.stringify(names);
  if (choice.dataset.shown === now) return;
  choice.dataset.shown = now;
  choice.replaceChildren(...names.map(([name, text]) => new Option(text, name)));
  if (chosen) choice.value = chosen;
  learn();
}

function showSpeed(models) {
  const now = performance.now(), total = models.reduce((sum, model) => sum + model.tokens_generated, 0);
  if (counted) speeds.push(Math.max(0, total - counted.total) / Math.max(0.001, (now - counted.now) / 1000));
  counted = { now, total };
  if (speeds.length > POINTS) speeds.shift();
  const most = Math.max(1, ...speeds);
  const points = speeds.map((speed, n) => `${(600 * (POINTS - speeds.length + n)) / (POINTS - 1)},${118 - (114 * speed) / most}`);
  byId("speed").firstElementChild.setAttribute("points", points.join(" "));
  const last = speeds.length ? speeds[speeds.length - 1] : 0;
  byId("most").textContent = `Now ${last.toFixed(1)} tokens a second; at most ${Math.max(0, ...speeds).toFixed(1)}.`;
}

function progress(job) {
  if (job.percent == null) return job.done == null ? "–" : `${job.done} ${job.unit || ""}`;
  const bar = document.createElement("progress"), text = document.createElement("span"), cell = document.createElement("div");
  bar.max = 100;
  bar.value = job.percent;
  bar.setAttribute("aria-label", `Progress of job ${job.id}`);
  const count = job.total && job.unit !== "bytes" ? `${job.done} of ${job.total} ${job.unit || ""}` : `${Math.round(job.percent)} %`;
  text.textContent = count;
  cell.append(bar, " ", text);
  return cell;
}

function cancelButton(job) {
  return textButton("Cancel", `Cancel job ${job.id}`, () => ask(`leap/jobs/${job.id}/cancel`, {}));
}

function showJobs(jobs, more) {
  if (byId("work").hidden) byId("work").open = !served; // a page of jobs alone shows them at once
  byId("work").hidden = false;
  byId("no-jobs").hidden = jobs.length > 0;
  byId("more-jobs").textContent = more ? `${more} more: leap jobs list` : "";
  inPlace(byId("jobs"), jobs, (job) => job.id, (job) => row("jobs", [job.id, job.kind, "", "", "", ""]), (line, job) => {
    const ended = ENDED.includes(job.state), cell = line.cells[5];
    line.cells[2].textContent = job.cancelling && !ended ? "cancelling" : job.state;
    line.cells[3].replaceChildren(progress(job));
    line.cells[4].textContent = job.label ?? "–";
    if (ended) {
      if (cell.contains(document.activeElement)) line.closest(".wide").focus();
      cell.replaceChildren();
    } else if (!cell.firstElementChild) cell.replaceChildren(cancelButton(job)); // new, or tried again
  });
}

function state(text) {
  if (byId("state").textContent !== text) byId("state").textContent = text;
}

function tell(error) {
  shownAt = performance.now();
  state(`Error: ${error.message}`);
}

async function refresh() {
  try {
    const props = await read("props");
    const names = props.models.map((model) => model.model).join();
    if (refreshes++ % LISTED_EVERY === 0 || names !== loaded) offered = (await read("v1/models")).data;
    loaded = names;
    showModels(props.models);
    showSpeed(props.models);
    const states = new Set(props.models.map((model) => model.state));
    if (performance.now() - shownAt > 10000 || byId("state").textContent.endsWith("does not answer")) {
      state(states.has("loading") ? "loading …" : served ? "ready" : "no model is served here");
    }
    if (props.jobs) {
      const listed = await read("leap/jobs");
      showJobs(listed.jobs, listed.more);
    }
  } catch (error) { tell(error); }
}

async function about() { // asked for once, and again with another key
  try {
    const page = await read("leap/page");
    offer(page);
    offerGuides(page.guides);
    shownAt = -Infinity; // an error about the key is over
  } catch (error) { tell(error); }
}

begin();
beginReader();
document.addEventListener("key", () => { about(); refresh(); });
about();
refresh();
setInterval(refresh, REFRESH_MS);
