// Requests to the server that this page came from, and the key that it may want.
export const byId = (id) => document.getElementById(id);

export function made(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

const fromAddress = new URLSearchParams(location.hash.slice(1)).get("key"); // never sent to a server
if (fromAddress) {
  sessionStorage.setItem("leap-key", fromAddress);
  history.replaceState(null, "", location.pathname);
}
let key = sessionStorage.getItem("leap-key") || "";

// Tabs of one browser share the key, which is never stored on the disk: a new tab asks those that are open.
const tabs = new BroadcastChannel("leap-key"), OTHERS_MS = 300;
const refused = new Set(); // keys of a server before this one, which other tabs may still have
tabs.onmessage = ({ data }) => {
  if (data.asks && key) tabs.postMessage({ key });
  else if (data.key && !key && !refused.has(data.key)) use(data.key);
};

function use(given) {
  key = given;
  sessionStorage.setItem("leap-key", key);
  byId("key-dialog").close();
  document.dispatchEvent(new Event("key"));
}

export async function ask(path, body, options = {}) {
  const headers = { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const sent = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const used = key;
  let answer;
  try {
    answer = await fetch(path, { ...sent, headers, ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer");
  }
  if (answer.status === 401) { askForKey(used); throw new Error("an API key is needed"); }
  if (!answer.ok) {
    const { error } = await answer.json().catch(() => ({}));
    const message = error?.message || (typeof error === "string" && error) || `${answer.status} ${answer.statusText}`;
    throw Object.assign(new Error(message), { status: answer.status });
  }
  return answer;
}

export const read = async (path, body, options) => (await ask(path, body, options)).json();

// The JSON of each event of a stream. One without an end is an error.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      throw error.name === "AbortError" ? error : new Error("the connection broke off");
    }
    if (piece.done) throw new Error("the answer broke off");
    const frames = (rest + piece.value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      if (frame === "data: [DONE]") return;
      if (!frame.startsWith("data: {")) continue;
      const event = JSON.parse(frame.slice(6));
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}

let asking = null;

function askForKey(used) {
  const dialog = byId("key-dialog");
  if (used) refused.add(used);
  if (key !== used) return; // another one came while the request was on its way
  key = ""; // another tab may know the right one
  if (dialog.open || asking) return;
  tabs.postMessage({ asks: true });
  asking = setTimeout(() => {
    asking = null;
    if (key || dialog.open) return;
    byId("key-refused").hidden = !refused.size;
    dialog.showModal();
  }, OTHERS_MS);
  dialog.onclose = () => {
    if (key || !byId("key").value) return;
    use(byId("key").value);
    tabs.postMessage({ key });
  };
}
