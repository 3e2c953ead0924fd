"""How tabs of the web UI share the API key, run by Node with a stand-in for the browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import leap_core.server.page

SOURCE = Path(leap_core.server.page.__file__).parent / "files" / "server.js"

SCRIPT = """
const source = require("fs").readFileSync(process.argv[1], "utf-8").replaceAll(/^export /gm, "");
let right = "one", asked = [];

function tab(key) {
  const kept = new Map(key ? [["leap-key", key]] : []);
  const parts = {}, part = (id) => (parts[id] ??= {
    open: false, value: "", hidden: true,
    showModal() { this.open = true; opened.shift()?.(); },
    close() { if (this.open) { this.open = false; this.onclose?.(); } },
  });
  const opened = [], came = [];
  const browser = {
    location: { hash: "", pathname: "/" }, history: {},
    sessionStorage: { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value) },
    document: { getElementById: part, dispatchEvent: () => came.shift()?.() },
    fetch: async (path, { headers }) => {
      asked.push(headers.Authorization ?? "");
      return headers.Authorization === `Bearer ${right}` ? { ok: true } : { status: 401 };
    },
  };
  const ask = new Function(...Object.keys(browser), `${source}; return ask;`)(...Object.values(browser));
  return {
    part, ask: () => ask("/v1/models").then(() => true, () => false),
    dialog: () => new Promise((done) => part("key-dialog").open ? done() : opened.push(done)),
    key: () => new Promise((done) => came.push(done)),
  };
}

(async () => {
  const said = {}, first = tab("one");
  said.first = await first.ask();
  const second = tab(), shared = second.key();
  said.withoutKey = await second.ask();
  await shared;
  said.shared = await second.ask();
  right = "two"; // another server with another key: what the tabs have is refused
  said.old = [await second.ask(), await first.ask()];
  await Promise.all([first.dialog(), second.dialog()]);
  said.refused = !first.part("key-refused").hidden;
  const third = tab(), typed = [second.key(), third.key()];
  said.third = await third.ask();
  first.part("key").value = "two";
  first.part("key-dialog").close();
  await Promise.all(typed);
  said.all = [await first.ask(), await second.ask(), await third.ask()];
  said.open = [first, second, third].some((each) => each.part("key-dialog").open);
  said.asked = asked.length;
  console.log(JSON.stringify(said));
  process.exit();
})();
"""


@pytest.mark.slow
def test_tabs_share_an_accepted_key_and_never_a_refused_one() -> None:
    node = shutil.which("node")
    asks = [node or "", "-p", "typeof BroadcastChannel"]
    if node is None or b"function" not in subprocess.run(asks, capture_output=True).stdout:
        pytest.skip("Node.js 18 or newer runs the page's script")
    done = subprocess.run([node, "-e", SCRIPT, str(SOURCE)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["first"], said["withoutKey"], said["shared"]) == (True, False, True)
    assert (said["old"], said["refused"], said["third"]) == ([False, False], True, False)
    assert (said["all"], said["open"], said["asked"]) == ([True, True, True], False, 9)
