// What is seen: the list of documents, the text with its marks, the values. Texts, values and names are only ever text.

const byId = (id) => document.getElementById(id);

function made(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

const HOW = { exact: "exact", partial: "in part", fuzzy: "nearly", not_in_text: "not in the text", no_place: "has no place of its own", absent: "not extracted" };
const DECIDED = { accept: "accepted", correct: "corrected", reject: "rejected" };

const pathOf = (pointer) =>
  PARTS(pointer).map((part, n) => (/^\d+$/.test(part) ? `[${part}]` : n && part === "-" ? "[+]" : n ? `.${part}` : part)).join("") || "the whole";

// A value as a person reads it. shown: the exact spelling of a number.
function valueText(value, shown) {
  if (shown !== undefined) return shown;
  return typeof value === "string" ? value : JSON.stringify(value);
}

function correctedText(json) {
  return json.startsWith('"') ? JSON.parse(json) : json;
}

class DocumentList {
  constructor(documents, onChoose) {
    this.rows = new Map();
    const list = byId("documents");
    list.replaceChildren(...documents.map((each) => {
      const count = made("span", { className: "note" });
      const button = made("button", { type: "button" }, made("bdi", { textContent: each.file }), count);
      button.addEventListener("click", () => onChoose(each));
      this.rows.set(each, { button, count });
      this.update(each);
      return made("li", {}, button);
    }));
  }

  update(each) {
    const { button, count } = this.rows.get(each);
    const doubts = each.doubtsLeft;
    count.textContent = `${each.decided} of ${each.count} decided${doubts ? `, ${doubts} doubtful` : ""}`;
    button.classList.toggle("decided", !each.waiting);
  }

  choose(each, before) {
    if (before) this.rows.get(before).button.removeAttribute("aria-current");
    const { button } = this.rows.get(each);
    button.setAttribute("aria-current", "true");
    if (byId("all").open) within(byId("documents").parentElement.parentElement, button);
  }
}

// Scroll a pane, and nothing else, so far that an element in it is seen.
function within(pane, element) {
  if (!element || pane.scrollHeight <= pane.clientHeight) return;
  const outer = pane.getBoundingClientRect();
  const inner = element.getBoundingClientRect();
  if (inner.top < outer.top) pane.scrollTop += inner.top - outer.top - 24;
  else if (inner.bottom > outer.bottom) pane.scrollTop += inner.bottom - outer.bottom + 24;
}

class Source {
  constructor(onChoose) {
    this.pane = byId("source");
    this.marks = [];
    this.pane.addEventListener("click", (event) => {
      const mark = event.target.closest("mark");
      if (mark) onChoose(Number(mark.dataset.entry));
    });
  }

  // The pictures that the text was read from, by the numbers of pages.
  show({ file, text, evidence }, colours, pictures = {}) {
    this.pictures = pictures;
    this.evidence = evidence;
    this.file = file;
    this.see(Object.keys(pictures)[0]);
    this.marks = evidence.map(() => []);
    this.pane.scrollTop = 0; // before the new text is there, which would be laid out for it
    this.pane.classList.toggle("none", !text.trim());
    if (!text.trim()) {
      this.pane.replaceChildren("There is no text to mark: this was a picture.");
      return;
    }
    this.pane.replaceChildren(...piecesOf(text, evidence).map((piece) => {
      if (!piece.entries.length) return document.createTextNode(piece.text);
      const title = piece.entries.map((n) => pathOf(evidence[n].pointer)).join(", ");
      const mark = made("mark", { textContent: piece.text, title, className: colours[piece.entries.at(-1)] });
      mark.dataset.entry = piece.entries.at(-1);
      for (const number of piece.entries) this.marks[number].push(mark);
      return mark;
    }));
  }

  see(page) {
    byId("seen").hidden = !this.pictures[page];
    if (!this.pictures[page]) return;
    byId("picture").src = this.pictures[page];
    byId("picture").alt = `Page ${page} of ${this.file}`;
  }

  choose(number, before) {
    const page = this.evidence[number]?.place?.page;
    if (page) this.see(page);
    for (const mark of this.marks[before] || []) mark.classList.remove("chosen");
    for (const mark of this.marks[number] || []) mark.classList.add("chosen");
    within(this.pane, this.marks[number]?.[0]);
  }
}

class Fields {
  constructor(onChoose) {
    this.list = byId("fields");
    this.onChoose = onChoose;
    this.rows = [];
  }

  show(reviewed, { evidence }, colours) {
    this.reviewed = reviewed;
    this.rows = evidence.map((entry, number) => {
      const parts = Object.fromEntries(["path", "decision", "value", "how"].map((name) => [name, made("span", { className: name, dir: name === "value" ? "auto" : "" })]));
      const button = made("button", { type: "button", className: "field" }, ...Object.values(parts));
      button.addEventListener("click", () => this.onChoose(number));
      const row = made("li", {}, button);
      parts.path.textContent = pathOf(entry.pointer);
      parts.how.textContent = reviewed.entries[number].end ? "elements that are missing can be added" : told(entry);
      return { row, button, parts, entry, colour: colours[number] };
    });
    this.list.replaceChildren(...this.rows.map((each) => each.row));
    this.rows.forEach((_, number) => this.update(number));
  }

  update(number) {
    const { row, parts, entry, colour } = this.rows[number];
    const { doubtful, shown } = this.reviewed.entries[number];
    const decision = this.reviewed.decisions[number];
    row.className = [colour, doubtful && "doubtful", decision?.decision, row.classList.contains("chosen") && "chosen"].filter(Boolean).join(" ");
    parts.decision.textContent = decision ? DECIDED[decision.decision] : "";
    const before = entry.how === "absent" ? "–" : valueText(entry.value, shown);
    if (!decision || decision.decision === "accept") parts.value.replaceChildren(before);
    else if (decision.decision === "reject") parts.value.replaceChildren(made("del", { textContent: before }));
    else parts.value.replaceChildren(made("del", { textContent: before }), " ", made("ins", { textContent: correctedText(decision.corrected) }));
  }

  choose(number, before, focus) {
    this.rows[before]?.row.classList.remove("chosen");
    this.rows[before]?.button.removeAttribute("aria-current");
    const chosen = this.rows[number];
    if (!chosen) return;
    chosen.row.classList.add("chosen");
    chosen.button.setAttribute("aria-current", "true");
    if (focus) {
      chosen.button.focus({ preventScroll: true });
      chosen.row.scrollIntoView({ block: "nearest" });
    }
  }
}

function told(entry) {
  const place = entry.place;
  const where = place && [place.page && `page ${place.page}`, place.line && `line ${place.line}`].filter(Boolean).join(", ");
  const sure = entry.confidence?.least;
  return [HOW[entry.how] || entry.how, where, sure !== undefined && `confidence ${sure.toFixed(2)}`].filter(Boolean).join(" · ");
}
