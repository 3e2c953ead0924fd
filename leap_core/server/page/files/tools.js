// Calls of tools: shown with an answer, run by the server under its policy, allowed or refused by the person.
import { byId, made, read } from "./server.js";

let offered = [], rounds = 0;
const always = new Set();

export function offerTools(tools, most) {
  offered = tools;
  rounds = most;
  byId("tools").hidden = !tools.length;
  byId("tool-list").replaceChildren(...tools.map((tool) => {
    const box = made("input", { type: "checkbox", id: `tool-${tool.name}`, checked: true, value: tool.name });
    const words = { allow: "runs without asking", ask: "asks you", deny: "is denied" }[tool.decision];
    return made("li", {}, box, " ", made("label", { htmlFor: box.id }, tool.name), made("span", { className: "note" }, ` ${words}. ${tool.description}`));
  }));
}

export function chosenTools() {
  const names = [...byId("tool-list").querySelectorAll("input:checked")].map((box) => box.value);
  return offered.filter((tool) => names.includes(tool.name)).map((tool) => tool.declaration);
}

export const written = (call) => `${call.function.name} ${call.function.arguments}`;

// Runs the calls of a turn; add gets what came of each, as a turn. Returns whether the model is to go on from that, throws
// what ends the answer.
export async function runCalls(turn, round, place, signal, add) {
  const toolOf = (call) => offered.find((tool) => tool.name === call.function.name);
  if (!turn.calls.every(toolOf)) return false; // for another program: the page has no such tool
  if (round >= rounds) throw new Error(`the model still calls tools after ${rounds} rounds`);
  for (const call of turn.calls) {
    const { name } = call.function, allowed = toolOf(call).decision !== "ask" || always.has(name) || await consent(call, place, signal);
    if (signal.aborted) return false;
    const body = { name, arguments: JSON.parse(call.function.arguments || "{}"), allowed };
    const result = await read("leap/tools/call", body, { signal });
    add({ role: "tool", id: call.id, name, text: result.content, failed: Boolean(result.error) });
    if (result.denied && !result.refused) throw new Error(`${name} was not run: ${result.error}`);
  }
  return true;
}

function consent(call, place, signal) { // whether the person lets it run
  return new Promise((resolve) => {
    const answers = [["Run it", true], ["Refuse", false], [`Always run ${call.function.name}`, "always"]];
    const asking = made("div", { className: "consent", role: "group", ariaLabel: `The model wants to run ${call.function.name}` },
      made("p", { role: "alert" }, `The model wants to run ${written(call)}`));
    const decide = (answer) => {
      const held = asking.contains(document.activeElement);
      asking.remove();
      if (held) byId("prompt").focus();
      if (answer === "always") always.add(call.function.name); // until the page is loaded anew
      resolve(Boolean(answer));
    };
    asking.append(made("div", { className: "actions" }, ...answers.map(([label, answer]) => {
      const button = made("button", { type: "button" }, label);
      button.onclick = () => decide(answer);
      return button;
    })));
    signal.addEventListener("abort", () => decide(false), { once: true });
    place.append(asking);
    asking.scrollIntoView({ block: "nearest" });
  });
}
