// Turns on the screen <-> messages as models, sessions and files have them: one for one, but for system prompts.

export function messagesOf(turns, system) { // as a model gets them: without reasoning
  const list = system ? [{ role: "system", content: system }] : [];
  const said = turns.filter(saysSomething);
  said.forEach((turn, n) => {
    if (turn.role === "user" && said[n + 1]?.role === "user") return; // unanswered: many models refuse two in a row
    if (turn.role === "user" && turn.message) list.push(turn.message); // its parts in their order
    else list.push(...ofTurn(turn, said.slice(n + 1)).map(({ reasoning_content, ...message }) => message));
  });
  return list;
}

// As they are kept: messages that were loaded stay what they were, also where the screen shows less of them.
export function wholeOf(talk, system = "") {
  const said = talk.turns.filter((turn) => turn.message || saysSomething(turn));
  const own = system ? [{ role: "system", content: system }] : [];
  let placed = false;
  const unseen = (messages = []) => messages.flatMap((message) => {
    if (message !== talk.prompt) return [message];
    placed = true;
    return system.trim() === textOf(message).replace(/\r\n?/g, "\n").trim() ? [message] : own;
  });
  const list = unseen(talk.before);
  said.forEach((turn, n) => {
    list.push(...(turn.message ? [turn.message] : ofTurn(turn, said.slice(n + 1))), ...unseen(turn.after));
  });
  return placed ? list : [...own, ...list];
}

const saysSomething = (turn) => turn.role !== "assistant" || turn.text || turn.calls?.length;

function ofTurn(turn, after) {
  if (turn.role === "assistant") {
    const message = { role: "assistant", content: turn.text || null };
    if (turn.reasoning) message.reasoning_content = turn.reasoning;
    if (turn.calls?.length) message.tool_calls = turn.calls;
    return [message, ...unanswered(turn, after)];
  }
  if (turn.role === "tool") return [{ role: "tool", tool_call_id: turn.id, content: turn.text }];
  if (!turn.parts?.length) return [{ role: "user", content: turn.text }];
  const parts = turn.parts.map(({ name, ...part }) => part);
  return [{ role: "user", content: [...parts, ...(turn.text ? [{ type: "text", text: turn.text }] : [])] }];
}

function unanswered({ calls = [] }, after) { // templates refuse calls without results
  const next = after.findIndex((turn) => turn.role !== "tool");
  const answered = (next < 0 ? after : after.slice(0, next)).map((turn) => turn.id);
  return calls.filter((call) => !answered.includes(call.id))
    .map((call) => ({ role: "tool", tool_call_id: call.id, content: '{"error": "it was not run"}' }));
}

const partsOf = (message) => (Array.isArray(message.content) ? message.content : [{ type: "text", text: message.content || "" }]);
const textOf = (message) => partsOf(message).filter((part) => part.type === "text").map((part) => part.text).join("\n");

// before, and after of a turn: messages that are not shown; prompt: the one of them that is the system prompt.
export function turnsOf(messages) {
  const turns = [], before = [], names = {};
  let prompt;
  for (const message of messages) {
    const text = textOf(message), last = turns[turns.length - 1];
    if (message.role === "system") {
      prompt = message;
      (last ? (last.after ||= []) : before).push(message);
    } else if (message.role === "assistant") {
      const calls = message.tool_calls || [];
      for (const call of calls) names[call.id] = call.function.name;
      const reasoning = message.reasoning_content || "";
      turns.push({ role: "assistant", text, message, ...(calls.length ? { calls } : {}), ...(reasoning ? { reasoning } : {}) });
    } else if (message.role === "tool") {
      turns.push({ role: "tool", id: message.tool_call_id, name: names[message.tool_call_id], text, message });
    } else {
      const others = partsOf(message).filter((part) => part.type !== "text");
      turns.push({ role: "user", text, message, ...(others.length ? { parts: others } : {}) });
    }
  }
  return { system: prompt ? textOf(prompt) : "", turns, before, prompt };
}

export function markdownOf(title, messages) {
  const sections = messages.map((message) => {
    const blocks = [`## ${message.role[0].toUpperCase()}${message.role.slice(1)}`];
    if (message.reasoning_content) blocks.push(message.reasoning_content.trim().replace(/^/gm, "> "));
    for (const part of partsOf(message)) {
      if (part.type === "text") blocks.push(message.role === "tool" ? fenced(part.text) : part.text);
      else blocks.push(part.type === "image_url" ? `![picture](<${part.image_url.url}>)` : "[sound]");
    }
    for (const call of message.tool_calls || []) blocks.push(fenced(`${call.function.name} ${call.function.arguments}`));
    return blocks.filter(Boolean).join("\n\n");
  });
  return [`# ${title.replace(/\s+/g, " ")}`, ...sections].join("\n\n") + "\n";
}

function fenced(text) {
  let fence = "```";
  while (text.includes(fence)) fence += "`";
  return `${fence}\n${text}\n${fence}`;
}
