// The list of conversations: opened, renamed, deleted, saved to files.
import { byId, made } from "./server.js";
import { all, forget, opened, rename } from "./kept.js";
import { markdownOf, wholeOf } from "./messages.js";

let order = Promise.resolve();

// current: the conversation on the screen; open: shows another one, null for a new one; tell: what went wrong.
export function list(current, open, tell) {
  order = order.then(async () => show(await all(), current, open, tell)).catch((error) => tell(error.message));
  return order;
}

function show(talks, current, open, tell) {
  const again = () => list(current, open, tell), trying = (work) => work.catch((error) => tell(error.message));
  const isCurrent = (each) => (each.session ? each.session === current().session : each.id === current().id);
  const rows = talks.map((each) => {
    const row = made("li", {}, made("button", { type: "button", className: "title", dir: "auto" }, each.title));
    row.firstChild.ariaCurrent = isCurrent(each) ? "true" : null;
    if (each.session) row.append(made("span", { className: "note" }, "session"));
    const actions = {
      Rename: async () => {
        const name = prompt("Title", each.title);
        if (!name) return;
        await rename(isCurrent(each) ? current() : each, name);
        await again();
      },
      Delete: async () => {
        if (!confirm(`Delete “${each.title}”?`)) return;
        await forget(each);
        if (isCurrent(each)) open(null);
        else await again();
      },
    };
    row.firstChild.onclick = () => { if (!isCurrent(each)) trying(opened(each).then(open)); };
    for (const [action, does] of Object.entries(actions)) {
      const button = made("button", { type: "button", className: "small", ariaLabel: `${action} ${each.title}` }, action);
      button.onclick = () => trying(does());
      row.append(button);
    }
    return row;
  });
  byId("conversations").replaceChildren(...rows);
  byId("kept").hidden = !rows.length;
}

export function save(talk, system, kind) { // as a file that the browser downloads
  const messages = wholeOf(talk, system), title = talk.title || "Conversation";
  const text = kind === "json" ? JSON.stringify(messages, null, 2) + "\n" : markdownOf(title, messages);
  const url = URL.createObjectURL(new Blob([text], { type: kind === "json" ? "application/json" : "text/markdown" }));
  const name = title.replace(/[^\p{L}\p{N} ._-]+/gu, "").trim().slice(0, 60) || "conversation";
  made("a", { href: url, download: `${name}.${kind === "json" ? "json" : "md"}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
