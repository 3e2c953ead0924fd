"""Whether LiteLLM reaches both protocols of decisions: by its two functions, and by the two routes of its proxy.

    pip install 'litellm[proxy]>=1.106'; python scripts/litellm_decisions.py [PYTHON WITH LEAP]

It starts `leap serve` of the built-in model, and LiteLLM's proxy before it. Each protocol is asked of a model that
speaks the one, and of a model that speaks the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from litellm_fallback import server

KEY = "sk-" + "0123456789abcdef" * 2
TEXT = "The parcel is late."
QUESTIONS = [
    {"type": "predicate", "name": "late", "instructions": "Is it late?"},
    {"type": "choice", "name": "topic", "instructions": "About what?", "choices": [{"value": "a"}, {"value": "b"}]},
    {"type": "score", "name": "mood", "instructions": "How angry?", "levels": [{"label": "calm"}, {"label": "cross"}]},
]
NAMED = {
    "late": {"type": "noul", "instructions": "Is it late?"},
    "topic": {"type": "choice", "instructions": "About what?", "criteria": {"a": None, "b": None}},
    "mood": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "cross"]},
}
WAITS = 120
"""Seconds that the proxy may take to start."""


@contextlib.contextmanager
def proxy(url: str) -> Iterator[str]:
    """The base URL of LiteLLM's proxy before the server at ``url``, which it knows by both protocols."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    models = [
        {"model_name": name, "litellm_params": {"model": f"{name}/builtin", "api_base": base, "api_key": "none"}}
        for name, base in (("openai", f"{url}/v1"), ("typesafe", url))
    ]
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "proxy.yaml"
        file.write_text(json.dumps({"model_list": models, "general_settings": {"master_key": KEY}}))
        command = [str(Path(sys.executable).with_name("litellm")), "--config", str(file), "--port", str(port)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                base = f"http://127.0.0.1:{port}"
                wait_for(f"{base}/health/liveliness")
                yield base
            finally:
                process.terminate()


def wait_for(url: str) -> None:
    """Until the URL is answered."""
    end = time.monotonic() + WAITS
    while time.monotonic() < end:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.5)
    raise SystemExit(f"{url} does not answer")


def post(url: str, body: dict[str, object]) -> dict[str, object]:
    """The answer of the proxy."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=60) as answer:
        return dict(json.load(answer))


def probability(answers: object) -> float:
    """Of the predicate, in either form; there are answers to all questions."""
    if isinstance(answers, dict):
        assert [answers[name]["type"] for name in NAMED] == ["noul", "choice", "score"], answers
        return float(answers["late"]["noul"])
    assert isinstance(answers, list) and [each["type"] for each in answers] == ["predicate", "choice", "score"], answers
    return float(answers[0]["probability"])


def main() -> int:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it asks GitHub otherwise
    import litellm

    found = {}
    with server() as url, proxy(url) as before:
        for provider, base in (("openai", f"{url}/v1"), ("typesafe", url)):
            given = {"model": f"{provider}/builtin", "api_base": base, "api_key": "none"}
            decided = litellm.decisions(input=TEXT, questions=QUESTIONS, **given)
            found[f"{provider} by decisions()"] = decided.model_dump(mode="json")["answers"]
            decided = litellm.systemone(state=TEXT, questions=NAMED, **given)
            found[f"{provider} by systemone()"] = decided.model_dump(mode="json")["answers"]
            for path, body in (
                ("decisions", {"input": TEXT, "questions": QUESTIONS}),
                ("systemone", {"state": TEXT, "questions": NAMED}),
            ):
                reply = post(f"{before}/v1/{path}", {"model": provider, **body})
                found[f"{provider} by the proxy's /v1/{path}"] = reply["answers"]
    shares = {way: probability(answers) for way, answers in found.items()}
    for way, share in shares.items():
        print(f"{way}: late {share:.4f}")
    return 0 if max(shares.values()) - min(shares.values()) < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
