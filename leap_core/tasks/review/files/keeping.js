// Where decisions are kept: in this browser, by the content of the page, or in the file of the server behind it.

class InBrowser {
  constructor(digest, saveAs, tell) {
    Object.assign(this, { key: `leap-review:${digest}:`, saveAs, tell, lost: new Set() });
    this.kept();
  }

  get unsaved() { return this.lost.size > 0; }

  set unsaved(_) { this.lost.clear(); }

  // Take up what an earlier visit decided. Returns how many documents that changed.
  restore(documents) { return documents.filter((each) => this.#take(each)).length; }

  // Hear what other windows with this page decide. onTaken(document) follows.
  listen(documents, onTaken) {
    addEventListener("storage", (event) => {
      const reviewed = documents().find((each) => event.key === this.key + each.number);
      if (reviewed && this.#take(reviewed)) onTaken(reviewed);
    });
  }

  #take(reviewed) {
    let found = null;
    try {
      found = JSON.parse(localStorage.getItem(this.key + reviewed.number));
    } catch { /* nothing is kept, or it is not ours */ }
    const fits = Array.isArray(found) && found.length === reviewed.entries.length;
    if (fits) reviewed.decisions = found;
    return fits;
  }

  change(document) {
    try {
      localStorage.setItem(this.key + document.number, JSON.stringify(document.decisions));
      this.lost.delete(document);
      for (const each of this.lost) {
        localStorage.setItem(this.key + each.number, JSON.stringify(each.decisions));
        this.lost.delete(each);
      }
      this.kept();
    } catch {
      this.lost.add(document);
      this.tell(`This browser keeps nothing: save ${this.saveAs} before you close the page.`, true);
    }
  }

  kept() { this.tell(`Kept in this browser; save ${this.saveAs} when you are done.`, false); }
}

// Decisions go to the server one step after the other; what it has not taken stays here and is sent again.
class OnServer {
  constructor(key, digest, saveAs, tell, onRefused) {
    Object.assign(this, { key, saveAs, tell, onRefused, waiting: [], isSending: false, name: `leap-review:${digest}:waiting` });
    this.kept();
  }

  get unsaved() { return this.waiting.length > 0; }

  set unsaved(_) { /* a saved copy is not the server's file */ }

  listen() { /* the server refuses what another window decided */ }

  // Take up the steps that an earlier visit could not send.
  restore(documents) {
    let found = null;
    try {
      found = JSON.parse(sessionStorage.getItem(this.name));
    } catch { /* nothing is kept */ }
    if (!this.waiting.length && Array.isArray(found)) this.waiting = found;
    for (const step of this.waiting) {
      for (const { entry, now } of step.changes) documents[step.document].decisions[entry] = now;
    }
    if (this.waiting.length) this.send();
    return this.waiting.length;
  }

  change(document, changes) {
    this.waiting.push({ document: document.number, changes });
    this.keep();
    this.send();
  }

  async send() {
    if (this.isSending) return;
    this.isSending = true;
    while (this.waiting.length || this.refused) {
      if (!this.waiting.length) {
        const why = this.refused;
        this.refused = "";
        await this.onRefused(why).catch((error) => this.tell(`${why}. ${error.message}`, true));
        continue;
      }
      const problem = await this.post(this.waiting[0]);
      if (problem && !problem.refused) {
        this.tell(`Not saved: ${problem.message}. What you decide stays here and is sent again; if leap has ended, save ${this.saveAs} before you close the page.`, true);
        setTimeout(() => { this.isSending = false; this.send(); }, 2000);
        return;
      }
      this.waiting.shift();
      this.keep();
      if (problem) {
        this.tell(problem.message, true);
        this.refused = problem.message;
      } else if (!this.waiting.length && !this.refused) {
        this.kept();
      }
    }
    this.isSending = false;
  }

  // Null when the server has the step on its disk; else why not, and whether it never will.
  async post({ document, changes }) {
    const decisions = changes.map(({ entry, was, now }) => `{"entry": ${entry}, "was": ${spelled(was)}, "now": ${spelled(now)}}`);
    const body = `{"document": ${document}, "decisions": [${decisions.join(", ")}]}`;
    try {
      const answer = await asked(this.key, "/review/decisions", { method: "POST", body });
      if (answer.ok) return null;
      const { error } = await answer.json().catch(() => ({}));
      return { message: error?.message || `the server says ${answer.status}`, refused: answer.status < 500 && answer.status !== 401 };
    } catch {
      return { message: "leap does not answer", refused: false };
    }
  }

  keep() {
    try {
      sessionStorage.setItem(this.name, JSON.stringify(this.waiting));
    } catch { /* they are still here */ }
  }

  kept() { this.tell(`Every decision is saved in ${this.saveAs}.`, false); }
}

const asked = (key, path, options = {}) =>
  fetch(path, { ...options, headers: { "Content-Type": "application/json", Authorization: `Bearer ${key}` } });
