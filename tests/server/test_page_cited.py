"""What the web UI does where the citations of a finished answer cannot be had, run by Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import leap_core.server.page

SOURCE = Path(leap_core.server.page.__file__).parent / "files" / "conversation.js"

SCRIPT = """
const source = require("fs").readFileSync(process.argv[1], "utf-8").match(/^async function cite[^]*?^}/m)[0];
const asked = [{ role: "user", text: "Which?" }];

async function cited(read) {
  const turn = { text: "Yellow.", note: "only words are searched", sources: [] };
  const failed = await new Function("read", `${source}; return cite;`)(read)(turn, asked).catch((error) => error.name);
  return [turn.text, turn.note, failed ?? null];
}

(async () => {
  console.log(JSON.stringify([
    await cited(async () => ({ text: "Yellow [1].", note: null })),
    await cited(async () => { throw new Error("413 Too Large"); }),
    await cited(async () => { throw Object.assign(new Error("stopped"), { name: "AbortError" }); }),
  ]));
})();
"""


def test_an_answer_stays_where_its_citations_fail() -> None:
    node = shutil.which("node")
    if node is None or subprocess.run([node, "-e", "[].findLast(Boolean) ?? 1"], capture_output=True).returncode:
        pytest.skip("Node.js 18 or later runs the page's script")
    done = subprocess.run([node, "-e", SCRIPT, str(SOURCE)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    before = "only words are searched"
    assert json.loads(done.stdout) == [
        ["Yellow [1].", before, None],
        ["Yellow.", f"{before}, not cited: 413 Too Large", None],
        ["Yellow.", before, "AbortError"],
    ]
