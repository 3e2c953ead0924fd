// Where conversations are kept: as leap's sessions where the server keeps them, else in the storage of this browser.
import { ask, read } from "./server.js";
import { turnsOf, wholeOf } from "./messages.js";

const PREFIX = "leap-conversation-", OPEN = "leap-open";
const MOST_KEPT_ALIVE = 50000; // bytes that browsers send for a page that is left
const deleted = new Set();
let sessions = false;

const idOf = (talk) => talk.session || talk.id;

export function keepSessions(does) {
  sessions = does;
}

// session: undefined for one of this browser, "" for one that will be a session, or its id; written: its messages there
export function fresh() {
  return { id: `${Date.now()}-${Math.random().toString(36).slice(2)}`, title: "", turns: [], ...(sessions ? { session: "", written: 0 } : {}) };
}

// Keeps a conversation; the words of a warning, if there is one. Throws where it cannot be kept.
export function keep(talk, model) {
  if (!talk.turns.length || deleted.has(idOf(talk))) return Promise.resolve("");
  talk.title ||= (talk.turns[0].text || "Conversation").slice(0, 80);
  if (talk.session !== undefined) {
    const before = Promise.resolve(talk.writing).catch(() => {}); // one after the other: each counts on the last
    return (talk.writing = before.then(() => write(talk, wholeOf(talk, talk.system), model)));
  }
  talk.changed = Date.now();
  localStorage.setItem(PREFIX + talk.id, JSON.stringify(talk));
  return Promise.resolve("");
}

async function write(talk, messages, model) {
  let warning = "";
  if (deleted.has(idOf(talk))) return warning; // while this waited
  if (talk.session) {
    try {
      const body = { messages, instead_of: talk.written };
      await read(`leap/sessions/${talk.session}`, body, { keepalive: JSON.stringify(body).length < MOST_KEPT_ALIVE });
      talk.written = messages.length;
      return "";
    } catch (error) {
      if (error.status !== 409 && error.status !== 404) throw error;
      if (deleted.has(idOf(talk))) return warning;
      warning = "Another program wrote to this session: the conversation is now kept as a new one.";
    }
  }
  const { session } = await read("leap/sessions", { model, messages });
  Object.assign(talk, { session: session.id, written: messages.length });
  return warning;
}

export async function forget(talk) {
  deleted.add(idOf(talk)); // an answer that still comes must not bring it back
  try {
    if (talk.session) await ask(`leap/sessions/${talk.session}`, undefined, { method: "DELETE" });
    else localStorage.removeItem(PREFIX + talk.id);
  } catch (error) {
    deleted.delete(idOf(talk));
    throw error;
  }
}

export async function rename(talk, title) { // a session's name is also what leap chat --session takes
  if (talk.session) await read(`leap/sessions/${talk.session}/name`, { name: title });
  talk.title = title;
  if (talk.session === undefined) localStorage.setItem(PREFIX + talk.id, JSON.stringify(talk));
}

export async function opened(talk) { // the whole of one that was listed
  if (!talk.session) return talk;
  const { session, messages } = await read(`leap/sessions/${talk.session}`);
  return { ...listed(session), ...turnsOf(messages), written: messages.length };
}

const listed = (session) => ({ id: session.id, session: session.id, title: session.name || session.title || session.id });

// The conversation that this tab shows survives a reload.
export function remember(talk) {
  if (talk.turns.length) sessionStorage.setItem(OPEN, idOf(talk));
  else sessionStorage.removeItem(OPEN);
}

export async function remembered() {
  const id = sessionStorage.getItem(OPEN), talk = id && (await all()).find((each) => idOf(each) === id);
  return talk ? opened(talk) : null;
}

export async function all() { // the newest first, sessions before those of this browser
  const found = [];
  for (const name of Object.keys(localStorage)) {
    if (!name.startsWith(PREFIX)) continue;
    try {
      found.push(JSON.parse(localStorage.getItem(name)));
    } catch { /* another page of this address wrote it */ }
  }
  const here = found.filter((talk) => Array.isArray(talk?.turns)).sort((a, b) => b.changed - a.changed);
  return sessions ? [...(await read("leap/sessions")).sessions.map(listed), ...here] : here;
}
