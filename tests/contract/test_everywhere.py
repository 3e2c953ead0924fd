"""The same request in this process, on a warm host, over HTTP, in a batch and as a job: one text, one error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.client import JobsClient
from leap_core import ChatMessage, GenerationOptions, Leap, LeapFunction, ModelLoadingOptions
from leap_core.conversation.streams import last_of
from leap_core.errors import LeapError
from leap_core.protocols.host.lookup import keep_warm, runner_of
from leap_core.protocols.host.model_host import ModelHost

LIGHT = {"type": "function", "function": {"name": "light", "parameters": {"properties": {"room": {"type": "string"}}}}}
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
QUOTED = r'<\|tool_call_start\|>\[light\(room="hall"\)\]<\|tool_call_end\|>'
FUNCTIONS = [LeapFunction.from_openai(LIGHT)]

Outcome = tuple[str, list[str]]
"""A text, or the message of an error, and the names of the functions that are called."""

CASES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "a seed": ("What is the capital of France?", {"temperature": 1.5, "rng_seed": 7, "max_tokens": 30}, False),
    "greedy": ("Count to 30.", {"temperature": 0, "max_tokens": 40}, False),
    "a schema": ("Name a city.", {"temperature": 1, "rng_seed": 3, "json_schema_constraint": json.dumps(CITY)}, False),
    "a call": ("Switch on the light in the hall.", {"temperature": 0, "tool_choice": "light"}, True),
    "a call that is quoted": ("Quote it.", {"tool_choice": "none", "regex_constraint": QUOTED}, True),
    "a length": ("Hi", {"temperature": 0, "ignore_eos": True, "max_tokens": 20}, False),
    "a least length": ("Hi", {"temperature": 0, "min_tokens": 15, "stop": ["e"], "stop_token_ids": [272]}, False),
    "too long": ("word " * 20_000, {"temperature": 0}, False),
    "no such function": ("Hi", {"tool_choice": "dark"}, True),
    "no schema": ("Hi", {"json_schema_constraint": '{"type": "nonsense"}'}, False),
}
"""A prompt, options, and whether the model has a function."""


def body(case: str) -> dict[str, Any]:
    """The request as a body of OpenAI's protocol."""
    prompt, options, calls = CASES[case]
    fields = {"tools": [LIGHT]} if calls else {}
    return {"messages": [{"role": "user", "content": prompt}], "leap": {"options": options}, **fields}


def on(runner: Any, case: str) -> Outcome:
    prompt, options, calls = CASES[case]
    try:
        message = last_of(
            runner.start(
                [ChatMessage("user", prompt)], FUNCTIONS if calls else (), GenerationOptions.from_json(options)
            )
        ).full_message
    except LeapError as error:
        return error.message, []
    return message.text, [call.name for call in message.function_calls or ()]


def of_reply(reply: dict[str, Any]) -> Outcome:
    message = reply["choices"][0]["message"]
    return message["content"] or "", [call["function"]["name"] for call in message.get("tool_calls", ())]


def over_http(host: ModelHost, case: str) -> Outcome:
    try:
        return of_reply(host.ask("POST", "/v1/chat/completions", {"model": "builtin", **body(case)}))
    except LeapError as error:
        return error.message, []


def in_batch(variables: dict[str, str], directory: Path) -> dict[str, Outcome]:
    """All cases as the lines of one batch."""
    (directory / "in.jsonl").write_text(
        "\n".join(json.dumps({"custom_id": case, "body": body(case)}) for case in CASES)
    )
    line = [sys.executable, "-m", "leap_cli", "batch", "in.jsonl", "-o", "out.jsonl", "-m", "builtin", "--skip-invalid"]
    done = subprocess.run(line, env=variables, cwd=directory, capture_output=True, text=True, timeout=200)
    rows = [json.loads(row) for row in (directory / "out.jsonl").read_text().splitlines()]
    found: dict[str, Outcome] = {
        row["custom_id"]: (row["error"]["message"], []) if row["error"] else of_reply(row["response"]["body"])
        for row in rows
    }
    for case in CASES.keys() - found.keys():
        number = list(CASES).index(case) + 1
        found[case] = next(each for each in done.stderr.splitlines() if f"line {number}: " in each), []
    return found


def as_jobs(variables: dict[str, str]) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    with JobsClient(variables) as client:
        ids = {}
        for case, (prompt, options, calls) in CASES.items():
            try:
                asked = GenerationOptions.from_json(options)
                ids[case] = client.generate(prompt, options=asked, functions=FUNCTIONS if calls else ())
            except LeapError as error:
                found[case] = error.message, []
        for case, id in ids.items():
            job = client.wait(id, timeout=200)
            if job.error is not None:
                found[case] = job.error["message"], []
            else:
                message = ChatMessage.from_json(job.result["message"])
                found[case] = message.text, [call.name for call in message.function_calls or ()]
    return found


@pytest.fixture(scope="module")
def places(
    tmp_path_factory: pytest.TempPathFactory, host_variables: dict[str, str]
) -> Iterator[Callable[[str], dict[str, Outcome]]]:
    variables = {**host_variables, "PYTHONPATH": os.getcwd(), "LEAP_TRY_MODELS": "0"}
    host, held = keep_warm("builtin", variables=variables, cpu_threads=1)
    with Leap.load("builtin", ModelLoadingOptions(cpu_threads=1)) as here, runner_of(host, held) as warm:
        batch, job = in_batch(variables, tmp_path_factory.mktemp("batch")), as_jobs(variables)

        def outcomes(case: str) -> dict[str, Outcome]:
            return {
                "here": on(here, case),
                "warm": on(warm, case),
                "server": over_http(host, case),
                "batch": batch[case],
                "job": job[case],
            }

        yield outcomes


@pytest.mark.parametrize("case", CASES)
def test_every_way_to_ask_gives_the_same_answer(places: Callable[[str], dict[str, Outcome]], case: str):
    found = places(case)
    text, calls = found["here"]
    assert text or calls
    for place, (said, called) in found.items():
        assert called == calls, (place, said)
        assert text in said if place == "batch" else said == text, place
    if case == "a call that is quoted":
        assert "tool_call_start" in text and not calls
    if case == "a call":
        assert calls == ["light"]
