// Turns on the screen <-> messages as models, sessions and files have them: one for one, but for the system prompt.

export function messagesOf(turns, system, whole = false) { // whole: with reasoning, as it is kept
  const list = system ? [{ role: "system", content: system }] : [];
  const said = turns.filter((turn) => turn.role !== "assistant" || turn.text || turn.calls?.length);
  said.forEach((turn, n) => {
    if (!whole && turn.role === "user" && said[n + 1]?.role === "user") return; // unanswered: many models refuse two in a row
    if (turn.role === "assistant") {
      const message = { role: "assistant", content: turn.text || null };
      if (whole && turn.reasoning) message.reasoning_content = turn.reasoning;
      if (turn.calls?.length) message.tool_calls = turn.calls;
      list.push(message);
      list.push(...unanswered(turn, said.slice(n + 1)));
    } else if (turn.role === "tool") {
      list.push({ role: "tool", tool_call_id: turn.id, content: turn.text });
    } else if (turn.parts?.length) {
      const parts = turn.parts.map(({ name, ...part }) => part);
      list.push({ role: "user", content: [...parts, ...(turn.text ? [{ type: "text", text: turn.text }] : [])] });
    } else list.push({ role: "user", content: turn.text });
  });
  return list;
}

function unanswered({ calls = [] }, after) { // templates refuse calls without results
  const next = after.findIndex((turn) => turn.role !== "tool");
  const answered = (next < 0 ? after : after.slice(0, next)).map((turn) => turn.id);
  return calls.filter((call) => !answered.includes(call.id))
    .map((call) => ({ role: "tool", tool_call_id: call.id, content: '{"error": "it was not run"}' }));
}

export function turnsOf(messages) {
  let system = "", turns = [], names = {};
  for (const message of messages) {
    const parts = Array.isArray(message.content) ? message.content : [];
    const text = Array.isArray(message.content)
      ? parts.filter((part) => part.type === "text").map((part) => part.text).join("\n") : message.content || "";
    if (message.role === "system") system = text;
    else if (message.role === "assistant") {
      const calls = message.tool_calls || [];
      for (const call of calls) names[call.id] = call.function.name;
      const reasoning = message.reasoning_content || "";
      turns.push({ role: "assistant", text, ...(calls.length ? { calls } : {}), ...(reasoning ? { reasoning } : {}) });
    } else if (message.role === "tool") {
      turns.push({ role: "tool", id: message.tool_call_id, name: names[message.tool_call_id], text });
    } else {
      const others = parts.filter((part) => part.type !== "text");
      turns.push({ role: "user", text, ...(others.length ? { parts: others } : {}) });
    }
  }
  return { system, turns };
}

export function markdownOf(title, messages) {
  const sections = messages.map((message) => {
    const blocks = [`## ${message.role[0].toUpperCase()}${message.role.slice(1)}`];
    if (message.reasoning_content) blocks.push(message.reasoning_content.trim().replace(/^/gm, "> "));
    for (const part of Array.isArray(message.content) ? message.content : [{ type: "text", text: message.content || "" }]) {
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
