// A value corrected in its place: its JSON type is kept, and what is none of it is refused with a word.

class Editor {
  constructor(row, kind, typed, onKeep, onLeave) {
    this.kind = kind;
    this.onKeep = onKeep;
    const label = `Correct ${row.parts.path.textContent}: ${called(kind)}`;
    this.input = kind.choices ? this.#choice(typed) : this.#text(typed);
    this.input.setAttribute("aria-label", label);
    this.problem = made("p", { className: "bad", hidden: true });
    this.problem.setAttribute("role", "alert");
    const keep = made("button", { type: "button", onclick: () => this.keep() }, "Keep ", made("kbd", { textContent: "Enter" }));
    const leave = made("button", { type: "button", onclick: onLeave }, "Leave ", made("kbd", { textContent: "Esc" }));
    const note = made("span", { className: "note", textContent: `Expected: ${called(kind)}.` });
    this.element = made("div", { className: "editor" }, this.input, this.problem, made("div", { className: "row" }, keep, leave, note));
    if (kind.types.includes("null") && !kind.choices) {
      leave.after(made("button", { type: "button", onclick: () => onKeep("null") }, "null"));
    }
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") onLeave();
      else if (event.key === "Enter" && event.target === this.input && !event.shiftKey && !event.isComposing) this.keep();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    row.row.append(this.element);
    this.input.focus();
    this.input.select?.();
    row.row.scrollIntoView({ block: "nearest" });
  }

  #choice(typed) {
    const select = made("select", {}, ...this.kind.choices.map((each) => made("option", { value: each, textContent: correctedText(each) })));
    if (this.kind.choices.includes(typed.json)) select.value = typed.json;
    return select;
  }

  #text(typed) {
    const isString = this.kind.plain.length === 1 && this.kind.plain[0] === "string";
    const text = isString && typed.json !== undefined ? correctedText(typed.json) : typed.json ?? "";
    const rows = Math.min(8, Math.max(1, text.split("\n").length, Math.ceil(text.length / 40)));
    const numeric = ["number", "integer"].includes(this.kind.plain[0]) && this.kind.plain.length === 1;
    return made("textarea", { value: text, rows, spellcheck: false, dir: "auto", inputMode: numeric ? "decimal" : "text" });
  }

  keep() {
    try {
      this.onKeep(this.kind.choices ? this.input.value : readTyped(this.input.value, this.kind));
    } catch (error) {
      this.problem.textContent = error.message;
      this.problem.hidden = false;
      this.input.setAttribute("aria-invalid", "true");
      this.input.focus();
    }
  }
}
