"""``scripts/serve_beside.py`` runs beside a server that stands in for llama-server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leap_core.models.builtin import model_path
from tests.support.lengths import usually

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "serve_beside.py"
OTHER = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({{"data": [{{"id": "m"}}]}}).encode())

    def do_POST(self):
        count = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["max_tokens"] - {lacking}
        self.send_response(200)
        self.end_headers()
        for n in range(count):
            self.say({{"choices": [{{"text": "word "}}]}})
        self.say({{"choices": [], "usage": {{"completion_tokens": count}}}})

    def say(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\\n\\n")

    def log_message(self, *said):
        pass

port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.mark.slow
@pytest.mark.parametrize("lacking", usually([1], [0, 1]))
def test_both_servers_are_measured_and_a_shorter_answer_is_an_error(tmp_path: Path, lacking: int) -> None:
    other = tmp_path / "llama-server"
    other.write_text(OTHER.format(python=sys.executable, lacking=lacking))
    other.chmod(0o755)
    given = ("--clients", "1", "3", "--rounds", "1", "--prompt", "4", "--tokens", "5", "--threads", "1")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(model_path()), "--llama-server", str(other), *given],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if lacking:
        assert done.returncode == 1 and "had [4]" in done.stderr, done.stderr
        return
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [each[:2] for each in rows] == [[n, name] for n in "13" for name in ("leap", "llama-server")]
    assert all(float(each[2]) > 0 and len([float(number) for number in each[3:]]) == 4 for each in rows)
