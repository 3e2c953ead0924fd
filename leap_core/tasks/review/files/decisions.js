// What was decided, step by step, and the lines of JSON that it is saved as.

// A decision as the fields of a JSON object.
const spelled = (each) =>
  each ? `{"decision": "${each.decision}"${each.corrected === undefined ? "" : `, "corrected": ${each.corrected}`}}` : "null";

// A document of the page: its values with what was decided; its text is parsed when it is shown.
class Reviewed {
  constructor(fields, number) {
    Object.assign(this, { number, file: fields.file, head: fields.head, entries: fields.entries });
    this.decisions = fields.entries.map((each) => (each.decision ? { decision: each.decision, corrected: each.corrected } : null));
  }

  get line() {
    const entries = this.entries.map((each, n) =>
      this.decisions[n] ? `${each.raw.slice(0, -1)}, ${spelled(this.decisions[n]).slice(1)}` : each.raw);
    return `${this.head}${entries.join(", ")}]}\n`;
  }

  get content() {
    return JSON.parse(`${this.head}${this.entries.map((each) => each.raw).join(", ")}]}`);
  }

  get decided() { return this.decisions.filter(Boolean).length; }

  get waiting() { return this.entries.filter((_, n) => this.waits(n)).length; }

  get count() { return this.decided + this.waiting; }

  get isDoubtful() { return this.entries.some((each) => each.doubtful); }

  // The end of a list needs no decision.
  waits(number) { return !this.decisions[number] && !this.entries[number].end; }

  get doubtsLeft() { return this.entries.filter((each, n) => each.doubtful && this.waits(n)).length; }
}

const sameDecision = (one, other) => one?.decision === other?.decision && one?.corrected === other?.corrected;

// The steps of a person, each of which can be undone. onChange(document, changes) hears of every one.
class Steps {
  constructor(onChange) {
    this.onChange = onChange;
    this.done = [];
  }

  // decided: [number of the entry, decision or null] of one document. Returns whether anything changed.
  take(document, decided) {
    const changes = decided
      .map(([entry, now]) => ({ entry, was: document.decisions[entry], now }))
      .filter((each) => !sameDecision(each.was, each.now));
    if (!changes.length) return false;
    this.done.push({ document, changes });
    this.#apply(document, changes);
    return true;
  }

  // Returns the step, null where there is none.
  undo() {
    const step = this.done.pop();
    if (!step) return null;
    const own = step.changes.filter(({ entry, now }) => sameDecision(step.document.decisions[entry], now));
    if (own.length) this.#apply(step.document, own.map(({ entry, was, now }) => ({ entry, was: now, now: was })));
    return { ...step, isLost: own.length < step.changes.length };
  }

  #apply(document, changes) {
    for (const { entry, now } of changes) document.decisions[entry] = now;
    this.onChange(document, changes);
  }
}
