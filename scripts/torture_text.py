"""Every hostile schema and chat template in a process of its own, held to 10 s and 1 GiB, while another thread looks
whether it still gets its turn.

    python scripts/torture_text.py schemas|templates [NAME…]

Prints those that fail or come near a bound, then the number by outcome, the longest time, the largest memory and the
longest wait of the other thread, which is how long a host would leave /health unanswered.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SECONDS, MEMORY = 10.0, 1024**3
WAIT = 1.0


def main() -> int:
    kind, names = sys.argv[1], sys.argv[2:]
    outcomes: Counter[str] = Counter()
    worst = {"seconds": 0.0, "memory": 0, "wait": 0.0}
    for name, text in _hostile(kind):
        if names and not any(each in name for each in names):
            continue
        result = _tried(kind, text)
        outcomes[result["outcome"]] += 1
        worst = {key: max(worst[key], result[key]) for key in worst}
        bad = result["outcome"] not in ("answered", "refused") or result["seconds"] > SECONDS or result["wait"] > WAIT
        if bad or names:
            print(f"{name}: {result}", flush=True)
    print(dict(outcomes), {key: round(value, 2) for key, value in worst.items()})
    return int(set(outcomes) > {"answered", "refused"})


def _hostile(kind: str) -> list[tuple[str, str]]:
    sys.path.insert(0, str(ROOT))
    if kind == "schemas":
        from tests.schemas.hostile_schemas import hostile_schemas

        return hostile_schemas()
    from tests.inference.template.hostile_templates import hostile_templates

    return hostile_templates()


def _tried(kind: str, text: str) -> dict[str, Any]:
    command = [sys.executable, __file__, f"--one-{kind}"]
    done = subprocess.run(command, input=text.encode("utf-8", "surrogatepass"), capture_output=True, timeout=300)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
    except ValueError:
        said = done.stderr.decode(errors="replace")[-300:]
        return {"outcome": f"died {done.returncode}", "seconds": 0.0, "memory": 0, "wait": 0.0, "said": said}


def one(kind: str) -> None:
    """Try the text on standard input, and say in JSON what became of it."""
    sys.path.insert(0, str(ROOT))
    text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    try_text = _prepared(kind)
    resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY, 4 * MEMORY))
    waits = [0.0]
    threading.Thread(target=_look, args=(waits,), daemon=True).start()
    before, started = time.process_time(), time.monotonic()
    outcome = try_text(text)
    seconds = min(time.monotonic() - started, time.process_time() - before)  # a busy machine is not the text's fault
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if memory > MEMORY:
        outcome = f"took {memory} bytes"
    print(json.dumps({"outcome": outcome, "seconds": seconds, "memory": memory, "wait": max(waits)}))


def _look(waits: list[float]) -> None:
    last = time.monotonic()
    while True:
        time.sleep(0.005)
        now = time.monotonic()
        waits.append(now - last)
        last = now


def _prepared(kind: str) -> Any:
    from leap_core.errors import LeapError

    if kind == "schemas":
        from leap_core.inference.constraints.grammars import enforce
        from leap_core.schemas.grammar_matcher import byte_tokenizer
        from leap_core.schemas.json_schema import read_schema

        read_schema('{"type": "string"}')
        tokenizer = byte_tokenizer()

        def run(text: str) -> None:
            schema = read_schema(text)
            tokenizer.matcher(enforce(schema, tokenizer).grammar)
            schema.problems('{"' + "a" * 40 + '!": 1}')
            schema.problems('"' + "a" * 40 + '!"')
    else:
        from leap_core.conversation.messages import ChatMessage
        from leap_core.inference.template.chat_template import ChatTemplate

        messages = [ChatMessage("system", "Be brief."), ChatMessage("user", "Hello " * 20)]

        def run(text: str) -> None:
            ChatTemplate(text, bos_text="<s>", eos_text="</s>", special_texts=["<s>", "</s>"]).render(messages)

    def attempt(text: str) -> str:
        try:
            run(text)
        except LeapError:
            return "refused"
        except BaseException as error:
            return f"bug: {type(error).__name__}: {str(error)[:200]}"
        return "answered"

    return attempt


if __name__ == "__main__":
    if sys.argv[1].startswith("--one-"):
        one(sys.argv[1].removeprefix("--one-"))
    else:
        sys.exit(main())
