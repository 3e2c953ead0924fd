"use strict";
const REFRESH_MS = 2000, POINTS = 150; // five minutes
const byId = (id) => document.getElementById(id);
const fromAddress = new URLSearchParams(location.hash.slice(1)).get("key"); // never sent to a server
if (fromAddress) {
  sessionStorage.setItem("leap-key", fromAddress);
  history.replaceState(null, "", location.pathname);
}
let key = sessionStorage.getItem("leap-key") || "", running = null;
const speeds = [];
const ENDED = ["succeeded", "failed", "cancelled"];
let served = false; // whether a model was ever seen: what was asked and answered stays while a server is away
let told = -Infinity; // when an error was shown
let counted = null; // tokens of all answers, and when they were counted

async function ask(path, options = {}) {
  const headers = { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const answer = await fetch(path, { ...options, headers });
  if (answer.status === 401) { askForKey(); throw new Error("an API key is needed"); }
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Error(body.error ? body.error.message : `${answer.status} ${answer.statusText}`);
  }
  return answer;
}

function askForKey() {
  const dialog = byId("key-dialog");
  if (dialog.open) return;
  dialog.showModal();
  dialog.onclose = () => { key = byId("key").value; sessionStorage.setItem("leap-key", key); refresh(); };
}

function row(cells) {
  const line = document.createElement("tr");
  for (const cell of cells) {
    const field = document.createElement("td");
    field.append(cell instanceof Node ? cell : String(cell ?? "–"));
    line.append(field);
  }
  return line;
}

function showModels(models) {
  served ||= models.length > 0;
  for (const part of document.querySelectorAll(".of-models")) part.hidden = !served;
  byId("models").replaceChildren(...models.map((model) => row([
    model.model, model.state, `${model.slots_in_use} of ${model.slots}`, model.waiting, model.tokens_per_second, model.context_size,
  ])));
  const choice = byId("model"), names = models.map((model) => model.model);
  if ([...choice.options].map((option) => option.value).join() !== names.join()) {
    const chosen = choice.value;
    choice.replaceChildren(...names.map((name) => new Option(name, name)));
    if (names.includes(chosen)) choice.value = chosen;
  }
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
  const button = document.createElement("button");
  button.textContent = "Cancel";
  button.dataset.job = job.id;
  button.setAttribute("aria-label", `Cancel job ${job.id}`);
  button.onclick = () => ask(`leap/jobs/${job.id}/cancel`, { method: "POST" }).then(refresh).catch(tell);
  return button;
}

function showJobs(jobs, more) { // rows stay where they are, so that a click or a selection is never lost
  byId("work").hidden = false;
  byId("no-jobs").hidden = jobs.length > 0;
  byId("more-jobs").textContent = more ? `${more} more: leap jobs list` : "";
  const table = byId("jobs"), rows = new Map([...table.rows].map((line) => [line.dataset.job, line]));
  jobs.forEach((job, place) => {
    let line = rows.get(job.id);
    rows.delete(job.id);
    if (!line) {
      line = row([job.id, job.kind, "", "", "", cancelButton(job)]);
      line.dataset.job = job.id;
    }
    if (table.rows[place] !== line) table.insertBefore(line, table.rows[place] || null);
    const ended = ENDED.includes(job.state), now = JSON.stringify(job);
    if (line.dataset.shown === now) return;
    line.dataset.shown = now;
    line.cells[2].textContent = job.cancelling && !ended ? "cancelling" : job.state;
    line.cells[3].replaceChildren(progress(job));
    line.cells[4].textContent = job.label ?? "–";
    if (ended) line.cells[5].replaceChildren();
    else if (!line.cells[5].firstElementChild) line.cells[5].replaceChildren(cancelButton(job)); // tried again
  });
  for (const line of rows.values()) line.remove();
}

function tell(error) {
  told = performance.now();
  byId("state").textContent = `Error: ${error.message}`;
}

async function refresh() {
  try {
    const props = await (await ask("props")).json();
    showModels(props.models);
    const states = new Set(props.models.map((model) => model.state));
    if (performance.now() - told > 10000) byId("state").textContent = states.has("loading") ? "loading …" : props.models.length ? "ready" : "no model is served here";
    if (props.jobs) {
      const listed = await (await ask("leap/jobs")).json();
      showJobs(listed.jobs, listed.more);
    }
  } catch (error) { tell(error); }
}

async function send(event) {
  event.preventDefault();
  if (running) return; // Ctrl-Enter asks for it even while the button is off
  const answer = byId("answer"), begun = performance.now();
  let tokens = 0, reason = null;
  byId("counts").textContent = "";
  byId("send").disabled = true;
  byId("stop").disabled = false;
  running = new AbortController();
  try {
    const body = { model: byId("model").value, stream: true, stream_options: { include_usage: true },
      messages: [{ role: "user", content: byId("prompt").value }] };
    const response = await ask("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal: running.signal });
    answer.textContent = "";
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        if (!frame.startsWith("data: {")) continue;
        const chunk = JSON.parse(frame.slice(6));
        if (chunk.error) throw new Error(chunk.error.message);
        if (chunk.usage) tokens = chunk.usage.completion_tokens;
        reason = chunk.choices?.[0]?.finish_reason || reason;
        answer.append(chunk.choices?.[0]?.delta?.content || "");
      }
    }
    const seconds = (performance.now() - begun) / 1000;
    if (!reason) throw new Error("the answer broke off");
    const cut = reason === "length" ? ", cut off at the limit of tokens" : "";
    byId("counts").textContent = `${tokens} tokens, ${seconds.toFixed(2)} s${cut}`;
  } catch (error) {
    byId("counts").textContent = error.name === "AbortError" ? "Stopped." : `Error: ${error.message}`;
  } finally {
    running = null;
    byId("send").disabled = false;
    byId("stop").disabled = true;
    refresh();
  }
}

byId("ask").addEventListener("submit", send);
byId("stop").addEventListener("click", () => running?.abort());
byId("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("ask").requestSubmit();
});
refresh();
setInterval(refresh, REFRESH_MS);
