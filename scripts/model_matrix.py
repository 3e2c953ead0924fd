"""What leap does with models as they are: one row of a Markdown table for each, beside llama-server's.

    python scripts/model_matrix.py MODEL.gguf … [--llama-server PATH] [--parts tools,speed] [--limit N]

tools: 22 questions that need a tool and 8 that do not, over every protocol, whole and streamed, and by two commands;
the worst counts. schemas: answers that satisfy their JSON schema. tasks: cases of benchmarks/tasks. streams: streamed
text equals whole text. sameness: equal requests have equal answers, alone and beside others. speed: tokens a second of
prompts and of answers. llama-server gets the same requests over the protocols that it has; it has no tasks. A part
that a program refuses or breaks is "refused", with the reason on stderr, and the others go on.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from leap_core.schemas.json_schema import check_schema  # noqa: E402

PARTS = ("tools", "schemas", "tasks", "streams", "sameness", "speed")
TASKS = ("extract", "classify", "redact")
SECONDS = 600.0
"""For one answer; machines may be busy."""
MOST_TOKENS = 128
PARTIAL = 8
"""The exit code of ``leap eval`` where some cases have no answer."""
TEXT, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
TOOLS = {
    "get_weather": ("Get the weather of a city.", {"city": TEXT}),
    "current_time": ("Get the current time in a city.", {"city": TEXT}),
    "add": ("Add two numbers.", {"a": NUMBER, "b": NUMBER}),
    "set_alarm": ("Set an alarm.", {"hour": INTEGER, "minute": INTEGER}),
    "send_mail": ("Send an e-mail.", {"to": TEXT, "text": TEXT}),
    "search_files": ("Find files by a word in their names.", {"word": TEXT}),
}
QUESTIONS = (
    ("What is the weather in Paris?", "get_weather"),
    ("Is it raining in Oslo?", "get_weather"),
    ("How warm is it in Madrid today?", "get_weather"),
    ("Tell me the weather of Lima.", "get_weather"),
    ("What time is it in Tokyo?", "current_time"),
    ("What is the current time in Berlin?", "current_time"),
    ("Tell me the time in New York.", "current_time"),
    ("How late is it in Cairo now?", "current_time"),
    ("Add 1234 and 5678.", "add"),
    ("What is 17.5 plus 4.25? Use the tool.", "add"),
    ("Add the numbers 8 and 15.", "add"),
    ("Sum up 300 and 45 with the tool.", "add"),
    ("Set an alarm for 7:30.", "set_alarm"),
    ("Wake me with an alarm at 6:15.", "set_alarm"),
    ("Please set the alarm to 22:00.", "set_alarm"),
    ("I need an alarm at 5:45.", "set_alarm"),
    ("Send an e-mail to ann@mail.example with the text: I am late.", "send_mail"),
    ("Mail bob@mail.example that the meeting is over.", "send_mail"),
    ("Write an e-mail to eva@mail.example: thank you!", "send_mail"),
    ("Find files with the word invoice in their names.", "search_files"),
    ("Search my files for report.", "search_files"),
    ("Which files have budget in their names?", "search_files"),
    ("Say hello.", None),
    ("Write a short poem about the sea.", None),
    ("What is the capital of France?", None),
    ("Explain what a comet is in one sentence.", None),
    ("Translate 'good morning' into Spanish.", None),
    ("Who wrote Hamlet?", None),
    ("Name three colors.", None),
    ("Thank you, that is all.", None),
)
"""Questions, and the tool that each needs."""
SCHEMAS = (
    ("Invent a person.", {"name": TEXT, "age": INTEGER}),
    ("Describe a book.", {"title": TEXT, "pages": INTEGER, "genre": {"enum": ["novel", "poetry", "science"]}}),
    ("Name three cities.", {"cities": {"type": "array", "items": TEXT, "minItems": 3, "maxItems": 3}}),
    ("Describe the weather.", {"sunny": {"type": "boolean"}, "degrees": NUMBER}),
    ("Name a day of this year.", {"day": {"type": "string", "format": "date"}}),
    ("Rate this: great service!", {"stars": {"type": "integer", "minimum": 1, "maximum": 5}}),
    ("Describe a shop.", {"address": {"type": "object", "properties": {"city": TEXT}, "required": ["city"]}}),
    ("Give a phone number.", {"phone": {"type": "string", "pattern": "^[0-9]{3}-[0-9]{4}$"}}),
    ("Is water wet?", {"answer": {"enum": ["yes", "no"]}, "reason": {"type": "string", "maxLength": 80}}),
    ("List two fruits with prices.", {"fruits": {"type": "array", "items": {"type": "object", "properties": {
        "name": TEXT, "price": NUMBER}, "required": ["name", "price"]}, "maxItems": 2}}),
)  # fmt: skip
PROMPTS = (
    "Name three colors.",
    "What is the capital of France?",
    "Write one sentence about the moon.",
    "Count from 1 to 10.",
    "Explain rain to a child.",
)


@dataclass
class Server:
    """A running server of one model. ``ollama``: whether it speaks Ollama's protocol."""

    name: str
    port: int
    ollama: bool

    @cached_property
    def model(self) -> str:
        """The name of its model."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request("GET", "/v1/models")
        name = json.loads(connection.getresponse().read())["data"][0]["id"]
        connection.close()
        return str(name)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The answer, or the events of a stream; None where there is no such path. Raises OSError."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            headers = {
                "Content-Type": "application/json",
                "Authorization": "Bearer x",
                "anthropic-version": "2023-06-01",
            }
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status == 404:
                return None
            text = answer.read().decode()
            if answer.status != 200:
                raise OSError(f"{path}: {answer.status} {text[:200]}")
            if not body.get("stream"):
                return json.loads(text)
            lines = (line.removeprefix("data: ") for line in text.splitlines())
            return [json.loads(line) for line in lines if line.startswith("{")]
        finally:
            connection.close()

    def chat(self, prompt: str, **more: Any) -> Any:
        """An answer of chat completions, without randomness."""
        body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": MOST_TOKENS, **more}
        return self.post("/v1/chat/completions", body)


@contextlib.contextmanager
def started(name: str, command: Sequence[str], port: int | None, home: str) -> Iterator[Server]:
    """A server, until its model is loaded. ``port``: None where it prints its address."""
    environment = {**os.environ, "LEAP_HOME": home}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        assert process.stdout is not None
        if port is None:
            address = process.stdout.readline().strip()
            if not address:
                raise OSError(f"{name} ended with exit code {process.wait()}")
            port = int(address.rpartition(":")[2].partition("/")[0])
        else:
            threading.Thread(target=process.stdout.read, daemon=True).start()
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    break
            if process.poll() is not None:
                raise OSError(f"{name} ended with exit code {process.returncode}")
            time.sleep(0.2)
        yield Server(name, port, name == "leap")
    finally:
        process.terminate()
        process.wait()


def schema_of(fields: dict[str, Any]) -> dict[str, Any]:
    """An object of these fields and no others."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def openai_tools() -> list[dict[str, Any]]:
    """The tools as chat completions have them."""
    return [
        {"type": "function", "function": {"name": name, "description": about, "parameters": schema_of(fields)}}
        for name, (about, fields) in TOOLS.items()
    ]


def by_chat(server: Server, question: str, stream: bool) -> list[str] | None:
    """The names of the tools that are called over chat completions; None where the server lacks the protocol."""
    answer = server.chat(question, tools=openai_tools(), stream=stream)
    messages = [
        choice["delta" if stream else "message"]
        for each in (answer if stream else [answer])
        for choice in each["choices"]
    ]
    calls = [call["function"] for message in messages for call in message.get("tool_calls") or ()]
    return [call["name"] for call in calls if call.get("name")]


def by_messages(server: Server, question: str, stream: bool) -> list[str] | None:
    """The same over Anthropic's messages."""
    tools = [{"name": n, "description": a, "input_schema": schema_of(fields)} for n, (a, fields) in TOOLS.items()]
    body = {
        "model": server.model,
        "messages": [{"role": "user", "content": question}],
        "tools": tools,
        "stream": stream,
    }
    answer = server.post("/v1/messages", {**body, "temperature": 0, "max_tokens": MOST_TOKENS})
    if answer is None:
        return None
    blocks = [each.get("content_block", {}) for each in answer] if stream else answer["content"]
    return [block["name"] for block in blocks if block.get("type") == "tool_use"]


def by_responses(server: Server, question: str, stream: bool) -> list[str] | None:
    """The same over OpenAI's responses."""
    tools = [
        {"type": "function", "name": n, "description": a, "parameters": schema_of(f)} for n, (a, f) in TOOLS.items()
    ]
    body = {"input": question, "tools": tools, "stream": stream, "temperature": 0, "max_output_tokens": MOST_TOKENS}
    answer = server.post("/v1/responses", body)
    if answer is None:
        return None
    done = (
        [each["item"] for each in answer if each["type"] == "response.output_item.done"] if stream else answer["output"]
    )
    return [item["name"] for item in done if item["type"] == "function_call"]


def by_ollama(server: Server, question: str, stream: bool) -> list[str] | None:
    """The same over Ollama's chat."""
    if not server.ollama:
        return None
    body = {"model": server.model, "messages": [{"role": "user", "content": question}], "tools": openai_tools()}
    options = {"temperature": 0, "num_predict": MOST_TOKENS}
    answer = server.post("/api/chat", {**body, "options": options, "stream": stream})
    messages = [each["message"] for each in (answer if stream else [answer])]
    return [call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()]


PROTOCOLS: dict[str, Callable[[Server, str, bool], list[str] | None]] = {
    "chat completions": by_chat,
    "messages": by_messages,
    "responses": by_responses,
    "ollama": by_ollama,
}


def run_leap(command: list[str], text: str, home: str) -> str:
    """What a command prints. Raises OSError where it fails."""
    environment = {**os.environ, "LEAP_HOME": home}
    done = subprocess.run(
        [sys.executable, "-m", "leap_cli", *command], input=text, capture_output=True, text=True, env=environment
    )
    if done.returncode not in (0, PARTIAL):
        raise OSError(f"leap {command[0]}: exit code {done.returncode}: {done.stderr.strip()[-200:]}")
    return done.stdout


def by_command(model: str, home: str) -> dict[str, Callable[[str], list[str]]]:
    """The commands that ask one question and print its calls."""
    path = Path(home) / "tools.json"
    path.write_text(json.dumps(openai_tools()))
    more = ["-m", model, "--tools-file", str(path), "--temperature", "0", "--max-tokens", str(MOST_TOKENS)]

    def generate(question: str) -> list[str]:
        message = json.loads(run_leap(["generate", *more, "--format", "json", question], "", home))["message"]
        return [call["function"]["name"] for call in message.get("tool_calls") or ()]

    def chat(question: str) -> list[str]:
        lines = run_leap(["chat", *more], question + "\n", home).splitlines()
        found = [json.loads(line) for line in lines if line.startswith('{"name":')]
        return [each["name"] for each in found if "arguments" in each]

    return {"generate": generate, "chat": chat}


def measure_tools(server: Server, model: str, home: str, limit: int) -> str:
    """Calls found of those wanted and, after a plus sign, calls that nothing asked for, at the worst of all ways."""
    ways: dict[str, Callable[[str], list[str] | None]] = {}
    for name, ask in PROTOCOLS.items():
        for stream in (False, True):
            ways[f"{name}{', streamed' * stream}"] = lambda q, ask=ask, stream=stream: ask(server, q, stream)
    ways |= by_command(model, home) if server.ollama else {}
    wanted = [each for each in QUESTIONS if each[1]][:limit]
    others = [each for each in QUESTIONS if not each[1]][:limit]
    results = []
    for name, way in ways.items():
        answers = [way(question) for question, _ in (*wanted, *others)]
        if None in answers:
            continue
        found = sum(tool in (each or ()) for (_, tool), each in zip(wanted, answers, strict=False))
        extra = sum(bool(each) for each in answers[len(wanted) :])
        print(
            f"  {server.name}, {name}: {found} of {len(wanted)} found, {extra} of {len(others)} others", file=sys.stderr
        )
        results.append((found, -extra))
    if not results:
        return "–"
    worst, extra = min(results)[0], -min(each for _, each in results)
    return f"{worst} of {len(wanted)}, {extra} of {len(others)}"


def measure_schemas(server: Server, limit: int) -> str:
    """Answers that satisfy their schema."""
    good = 0
    for prompt, fields in SCHEMAS[:limit]:
        schema = schema_of(fields)
        shape = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
        text = server.chat(prompt, response_format=shape)["choices"][0]["message"]["content"]
        with contextlib.suppress(ValueError):
            good += not check_schema(schema).problems_of(json.loads(text))
    return f"{good} of {len(SCHEMAS[:limit])}"


def measure_tasks(model: str, home: str, limit: int) -> str:
    """Cases as expected, of each task."""
    counts = []
    for task in TASKS:
        lines = (ROOT / "benchmarks" / "tasks" / f"{task}.jsonl").read_text().splitlines(keepends=True)
        step = max(1, len(lines) // limit)
        cases = Path(home) / f"{task}.jsonl"
        cases.write_text("".join(lines[::step][:limit]))
        shown = run_leap(["eval", str(cases), "-m", model, "--format", "json", "-q"], "", home)
        (column,) = json.loads(shown)["columns"]
        if column["errors"] == column["cases"]:
            raise OSError(f"no case of {task} has an answer")
        counts.append(f"{column['passed']}/{column['cases']}")
    return ", ".join(counts)


def text_of(server: Server, prompt: str, stream: bool) -> str:
    """The text of an answer of 32 tokens at most."""
    answer = server.chat(prompt, stream=stream, max_tokens=32)
    if not stream:
        return str(answer["choices"][0]["message"]["content"])
    return "".join(choice["delta"].get("content") or "" for each in answer for choice in each["choices"])


def measure_streams(server: Server, limit: int) -> str:
    """Streams whose text is that of the whole answer."""
    prompts = PROMPTS[:limit]
    return f"{sum(text_of(server, p, False) == text_of(server, p, True) for p in prompts)} of {len(prompts)}"


def measure_sameness(server: Server, limit: int) -> str:
    """Answers that are the same again alone, and the same beside others."""
    prompts = PROMPTS[:limit]
    first = [text_of(server, prompt, False) for prompt in prompts]
    again = [text_of(server, prompt, False) for prompt in prompts]
    beside = [""] * len(prompts)

    def ask(number: int) -> None:
        beside[number] = text_of(server, prompts[number], False)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone, together = ([a == b for a, b in zip(first, other, strict=True)] for other in (again, beside))
    return f"{sum(alone)} and {sum(together)} of {len(prompts)}"


def measure_speed(server: Server) -> str:
    """Tokens a second: of a prompt of some 600 tokens, and of an answer."""
    prompt = " ".join(f"Line {number}: the river is {number * 7} meters wide." for number in range(45))
    start = time.monotonic()
    usage = server.chat(prompt, max_tokens=1)["usage"]
    read = usage["prompt_tokens"] / (time.monotonic() - start)
    server.chat("Count from 1 to 100.", max_tokens=1)
    start = time.monotonic()
    made = server.chat("Count from 1 to 100.", max_tokens=65)["usage"]["completion_tokens"]
    return f"{read:.0f}, {made / (time.monotonic() - start):.0f}"


def row(server: Server, model: str, home: str, given: argparse.Namespace) -> str:
    """The row of a model and a server."""
    measures: dict[str, Callable[[], str]] = {
        "tools": lambda: measure_tools(server, model, home, given.limit),
        "schemas": lambda: measure_schemas(server, given.limit),
        "tasks": lambda: measure_tasks(model, home, given.limit) if server.ollama else "–",
        "streams": lambda: measure_streams(server, given.limit),
        "sameness": lambda: measure_sameness(server, given.limit),
        "speed": lambda: measure_speed(server),
    }
    cells = []
    for part in given.parts:
        try:
            cells.append(measures[part]())
        except (OSError, ValueError, KeyError) as error:
            print(f"  {server.name}, {part}: {error}", file=sys.stderr)
            cells.append("refused")
    return f"| {Path(model).stem} | {server.name} | {' | '.join(cells)} |"


def print_row(
    name: str, command: Sequence[str], port: int | None, model: str, home: str, given: argparse.Namespace
) -> None:
    """The row of a program that is started for it."""
    try:
        with started(name, command, port, home) as server:
            print(row(server, model, home, given), flush=True)
    except OSError as error:
        print(f"  {error}", file=sys.stderr)
        print(f"| {Path(model).stem} | {name} | {' | '.join(['refused'] * len(given.parts))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a GGUF file, or builtin")
    parser.add_argument("--llama-server", metavar="PATH")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--limit", type=int, default=60, help="questions or cases of each part, at most")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(f"| model | program | {' | '.join(given.parts)} |\n|---|---|{'---|' * len(given.parts)}", flush=True)
    for model in given.models:
        with tempfile.TemporaryDirectory(prefix="leap-matrix-") as home:
            threads = ["--threads", str(given.threads)]
            command = [sys.executable, "-m", "leap_cli", "serve", model, "--port", "0", *threads]
            print_row("leap", command, None, model, home, given)
            if given.llama_server:
                import socket

                with socket.create_server(("127.0.0.1", 0)) as free:
                    port = free.getsockname()[1]
                command = [given.llama_server, "-m", model, "--port", str(port), "--jinja", *threads]
                print_row("llama-server", command, port, model, home, given)


if __name__ == "__main__":
    main()
