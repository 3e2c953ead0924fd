// The review itself: which value is chosen, what keys and buttons do.

const KEYS = {
  j: "nextValue", ArrowDown: "nextValue", k: "previousValue", ArrowUp: "previousValue", n: "nextDocument", p: "previousDocument",
  d: "nextDoubtful", a: "accept", c: "correct", r: "reject", A: "acceptRest", x: "clear", u: "undo", s: "save", "?": "help",
};
const MOVES = ["nextValue", "previousValue", "nextDocument", "previousDocument"];
const COLOURS = 8;
const fieldOf = (pointer) => pointer.replace(/\/(\d+|-)(?=\/|$)/g, "/*");

class Review {
  constructor(data, keeping) {
    this.keeping = keeping;
    this.saveAs = data.save_as;
    this.source = new Source((number) => this.choose(number, true));
    this.fields = new Fields((number) => this.choose(number, true));
    this.begin(data);
  }

  // Begin, or go on with what these documents are now: doubtful ones first, else in their order.
  begin(data) {
    const [before, chosen] = [this.shown, this.chosen];
    this.pictures = data.pictures || {};
    this.documents = data.documents.map((each, number) => new Reviewed(each, number));
    this.order = [...this.documents.filter((each) => each.isDoubtful), ...this.documents.filter((each) => !each.isDoubtful)];
    this.steps = new Steps((reviewed, changes) => this.changed(reviewed, changes));
    const restored = this.keeping.restore(this.documents);
    this.list = new DocumentList(this.order, (each) => this.open(each, 0, true));
    this.shown = null;
    this.count();
    if (before) this.open(this.documents[before.number], chosen);
    else this.open(this.order.find((each) => each.waiting) || this.order[0]);
    if (restored) this.say("What you decided before is here again.");
  }

  // Another window decided about this document.
  taken(reviewed) {
    this.list.update(reviewed);
    if (reviewed === this.shown) reviewed.entries.forEach((_, number) => this.fields.update(number));
    this.count();
  }

  open(reviewed, number, focus = false) {
    if (reviewed !== this.shown) {
      this.list.choose(reviewed, this.shown);
      this.shown = reviewed;
      this.content = reviewed.content;
      this.chosen = -1;
      const fields = [...new Set(this.content.evidence.map((entry) => fieldOf(entry.pointer)))];
      const colours = this.content.evidence.map((entry) => `c${fields.indexOf(fieldOf(entry.pointer)) % COLOURS}`);
      byId("name").textContent = reviewed.file;
      document.title = `Review: ${reviewed.file}`;
      this.editor = null;
      this.source.show(this.content, colours, this.pictures[reviewed.number]);
      this.fields.show(reviewed, this.content, colours);
    }
    const first = Math.max(0, reviewed.entries.findIndex((_, n) => reviewed.waits(n)));
    this.choose(number ?? first, focus);
  }

  choose(number, focus) {
    if (this.editor && number !== this.chosen) this.leave();
    if (number === this.chosen && !focus) return;
    this.source.choose(number, this.chosen);
    this.fields.choose(number, this.chosen, focus);
    this.chosen = number;
  }

  changed(reviewed, changes) {
    this.list.update(reviewed);
    if (reviewed === this.shown) for (const { entry } of changes) this.fields.update(entry);
    this.count();
    this.keeping.change(reviewed, changes);
  }

  count() {
    const sum = (of) => this.documents.reduce((total, each) => total + of(each), 0);
    const [decided, values, doubts] = [sum((each) => each.decided), sum((each) => each.count), sum((each) => each.doubtsLeft)];
    byId("progress").textContent = `${decided} of ${values} values decided in ${this.documents.length} document${this.documents.length === 1 ? "" : "s"}${doubts ? `, ${doubts} doubtful left` : ""}`;
  }

  say(words) { byId("said").textContent = words; }

  act(name) {
    if (this.editor && !["save", "help"].includes(name)) this.leave();
    this.say("");
    this[name]();
  }

  nextValue() { if (this.chosen + 1 < this.shown.entries.length) this.choose(this.chosen + 1, true); else this.say("This was the last value of the document."); }

  previousValue() { if (this.chosen > 0) this.choose(this.chosen - 1, true); else this.say("This is the first value of the document."); }

  nextDocument() { this.step(1); }

  previousDocument() { this.step(-1); }

  step(by) {
    const next = this.order[this.order.indexOf(this.shown) + by];
    if (next) this.open(next, undefined, true); else this.say(by > 0 ? "This is the last document." : "This is the first document.");
  }

  // Go to the next value after the chosen one that fits, around the end of the document or, with all, of the documents.
  seek(fits, all) {
    const after = this.shown.entries.map((_, n) => (n + this.chosen + 1) % this.shown.entries.length);
    const at = this.order.indexOf(this.shown);
    const later = [...this.order.slice(at + 1), ...this.order.slice(0, at)];
    const own = all ? after.filter((n) => n > this.chosen) : after;
    const found = own.find((n) => fits(this.shown, n));
    if (found !== undefined) return this.open(this.shown, found, true), true;
    for (const each of later) {
      const number = each.entries.findIndex((_, n) => fits(each, n));
      if (number >= 0) return this.open(each, number, true), true;
    }
    const rest = all ? after.find((n) => fits(this.shown, n)) : undefined;
    if (rest !== undefined) return this.open(this.shown, rest, true), true;
    return false;
  }

  onward(words) {
    const found = this.seek((each, n) => each.waits(n), false);
    if (!found) this.fields.choose(this.chosen, this.chosen, true);
    this.say(found ? words : `${words} All is decided.`);
  }

  decide(decision, words) {
    if (!this.content.evidence.length) return this.say("This document has no values.");
    this.steps.take(this.shown, [[this.chosen, decision]]);
    this.onward(`${pathOf(this.content.evidence[this.chosen].pointer)}: ${words}.`);
  }

  accept() { this.decide({ decision: "accept" }, "accepted"); }

  reject() {
    if (this.content.evidence[this.chosen]?.how === "absent") this.say("There is nothing to reject: accept that it is absent, or correct it.");
    else this.decide({ decision: "reject" }, "rejected");
  }

  clear() {
    this.steps.take(this.shown, [[this.chosen, null]]);
    this.say("The decision is taken back.");
  }

  acceptRest() {
    const rest = this.shown.entries.map((_, n) => n).filter((n) => this.shown.waits(n));
    this.steps.take(this.shown, rest.map((n) => [n, { decision: "accept" }]));
    this.onward(`${this.shown.file}: ${rest.length} accepted.`);
  }

  nextDoubtful() {
    if (!this.seek((each, n) => each.entries[n].doubtful && each.waits(n), true)) this.say("No doubtful value is left.");
  }

  undo() {
    const step = this.steps.undo();
    if (!step) return this.say("There is nothing to undo.");
    this.open(step.document, step.changes[0].entry, true);
    this.say(step.isLost ? "What another window decided since stays." : "Undone.");
  }

  correct() {
    const entry = this.content.evidence[this.chosen];
    if (!entry) return this.say("This document has no values.");
    const row = this.fields.rows[this.chosen];
    const before = this.shown.decisions[this.chosen]?.corrected ?? this.shown.entries[this.chosen].shown ?? (entry.how === "absent" ? undefined : JSON.stringify(entry.value));
    const kind = this.shown.entries[this.chosen].end ? { types: ["array"], plain: ["array"], choices: null } : kindOf(this.content.schema, entry);
    this.editor = new Editor(row, kind, { json: before }, (json) => this.keep(json), () => { this.leave(); row.button.focus(); });
  }

  keep(json) {
    this.leave();
    this.decide({ decision: "correct", corrected: json }, "corrected");
  }

  leave() {
    this.editor.element.remove();
    this.editor = null;
  }

  save() {
    const link = made("a", { href: URL.createObjectURL(new Blob(this.documents.map((each) => each.line), { type: "application/jsonl" })), download: this.saveAs });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    this.keeping.unsaved = false;
    this.say(`Saved as ${this.saveAs} where this browser keeps downloads.`);
  }

  help() { byId("help").showModal(); }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open || event.target.closest("textarea, select, input, .editor")) return;
    const latin = event.key.length === 1 && event.key > "\x7f" ? event.code.slice(3).toLowerCase() : event.key;
    const key = latin.length === 1 && /[a-z]/i.test(latin) ? (event.shiftKey && latin.toLowerCase() === "a" ? "A" : latin.toLowerCase()) : latin;
    const name = Object.hasOwn(KEYS, key) ? KEYS[key] : null;
    if (!name || (event.repeat && !MOVES.includes(name))) return;
    if (event.key.startsWith("Arrow") && event.target.closest("#source, nav")) return;
    event.preventDefault();
    this.act(name);
  }

  start() {
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.keeping.listen(() => this.documents, (reviewed) => this.taken(reviewed));
    for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", () => this.act(button.dataset.act));
    addEventListener("beforeunload", (event) => { if (this.keeping.unsaved) event.preventDefault(); });
    const wide = matchMedia("(min-width: 60rem)");
    const fold = () => { byId("all").open = wide.matches; };
    wide.addEventListener("change", fold);
    fold();
  }
}
