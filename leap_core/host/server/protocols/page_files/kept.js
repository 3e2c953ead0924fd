// Conversations in the storage of this browser, the newest first.
const PREFIX = "leap-conversation-";

export function fresh() {
  return { id: `${Date.now()}-${Math.random().toString(36).slice(2)}`, title: "", turns: [] };
}

export function keep(talk) { // throws where the browser has no room for it
  if (!talk.turns.length) return;
  talk.title ||= (talk.turns[0].text || "Conversation").slice(0, 80);
  talk.changed = Date.now();
  localStorage.setItem(PREFIX + talk.id, JSON.stringify(talk));
}

export const forget = (id) => localStorage.removeItem(PREFIX + id);

export function all() {
  const found = [];
  for (const name of Object.keys(localStorage)) {
    if (!name.startsWith(PREFIX)) continue;
    try {
      found.push(JSON.parse(localStorage.getItem(name)));
    } catch { /* another page of this address wrote it */ }
  }
  return found.filter((talk) => Array.isArray(talk?.turns)).sort((a, b) => b.changed - a.changed);
}
