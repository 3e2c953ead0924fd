"""Tools of MCP servers, with a server of the official package; and leap's own server, with its client."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import pytest

from leap_core import __version__
from leap_core.conversation.messages import LeapFunctionCall
from leap_core.conversation.responses import FunctionCalls
from leap_core.errors import LeapToolError
from leap_core.testing.sounds import clip_of
from leap_core.tools.execution import run_call
from leap_core.tools.mcp import connections, server_of, tools_of
from leap_core.tools.policy import ToolPolicy
from leap_core.tools.sources import CommandRegistry
from tests.support.lengths import lengths, usually

pytestmark = pytest.mark.slow

pytest.importorskip("mcp", reason="needs leap-edge[mcp]")

ROOT = Path(__file__).parent.parent.parent
NAMES = [f"three_{name}" for name in ("add", "shout", "count", "fail", "a_b", "a_b_2")]
SERVER = shlex.join([sys.executable, str(Path(__file__).parent / "mcp_server.py")])


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    made = CommandRegistry(tmp_path_factory.mktemp("mcp") / "tools.json")
    made.add_server("three", SERVER)
    return made


@pytest.fixture(autouse=True, scope="module")
def none_left():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leap_core.tools.mcp.LIST_SECONDS", 200.0)  # a busy machine takes longer than people would wait
        yield
    connections.close()


def is_running(process: int) -> bool:
    """Whether a process runs, and is not only waited for."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


def call(registry, name, seconds=100.0, **arguments):
    function = next(each for each in registry.functions() if each.name == name)
    return run_call(function, LeapFunctionCall(name, arguments), ToolPolicy(timeout=seconds))


@pytest.mark.slow
def test_the_tools_of_a_server_are_registered_under_its_name_and_called(registry):
    assert [each.name for each in registry.functions()] == NAMES
    assert registry.functions()[0].description == "Add two numbers."
    assert call(registry, "three_add", a=2, b=3).text == "5"
    assert call(registry, "three_shout", text="zoë").text == "ZOË"
    assert "there is no argument 'c'" in (call(registry, "three_add", a=1, b=2, c=3).error or "")


@pytest.mark.slow
def test_a_server_is_kept_while_it_answers_and_another_one_follows_it(registry):
    """It was started anew for every call, and one that hung was left behind."""
    assert "Error executing tool fail" in (call(registry, "three_fail", how="raise").error or "")
    first, process = call(registry, "three_count").text.split()
    assert call(registry, "three_count").text == f"{int(first) + 1} {process}", "it remembers its calls"
    done = []
    threads = [
        threading.Thread(target=lambda n=n: done.append(call(registry, "three_add", a=n, b=1))) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(each.text) for each in done) == [1, 2, 3, 4]
    assert "the MCP server" in (call(registry, "three_fail", how="die").error or "")
    count, successor = call(registry, "three_count").text.split()
    assert (count, is_running(int(process))) == ("1", False) and successor != process

    assert "longer than 2 s" in (call(registry, "three_fail", seconds=2.0, how="hang").error or "")
    deadline = time.monotonic() + 60
    while is_running(int(successor)):
        assert time.monotonic() < deadline, "what hangs is ended"
        time.sleep(0.02)
    cancelled = threading.Event()
    cancelled.set()
    function = next(each for each in registry.functions() if each.name == "three_add")
    interrupted = run_call(function, LeapFunctionCall("three_add", {"a": 1, "b": 2}), ToolPolicy(), cancelled)
    assert interrupted.error == "it was interrupted"
    assert call(registry, "three_shout", text="zoë").text == "ZOË"


@pytest.mark.slow
def test_a_long_result_is_cut(registry):
    function = next(each for each in registry.functions() if each.name == "three_shout")
    result = run_call(function, LeapFunctionCall("three_shout", {"text": "ä" * 500}), ToolPolicy(output_limit=100))
    assert result.text.startswith("Ä" * 50) and "cut" in result.text and len(result.text) < 200


ODD = shlex.join([sys.executable, str(Path(__file__).parent / "odd_mcp_server.py")])


@pytest.mark.slow
@pytest.mark.parametrize("how", usually(["noise"], ["results", "noise"]))
def test_every_kind_of_content_reaches_the_model_as_text(tmp_path, how):
    made = CommandRegistry(tmp_path / "tools.json")
    made.add_server("odd", f"{ODD} {shlex.quote(how)}")
    texts = {each.name.removeprefix("odd_"): call(made, each.name).text for each in made.functions()}
    assert texts == {
        "text": "successfully downloaded (SHA 1)\n[repo://o/r/README.md]\n# Leap\nRuns models.",
        "blob": "[repo://o/r/README.md]\nMonday",
        "binary": "[resource: a.bin, application/zip, 6 bytes, not shown]",
        "link": "[resource link: a.md, file:///a.md, Notes of Monday]",
        "image": "[image: image/png, 6 bytes, not shown]",
        "audio": "[audio: audio/wav, 6 bytes, not shown]",
        "structured": '2 rows\n{"rows": [1, 2]}',
        "repeated": '{"rows": [1, 2]}',
    }


ODD_ANSWERS = [
    ("surrogate", "not valid Unicode"),
    ("bytes", "not valid Unicode"),
    ("lines", "not JSON on one line"),
    ("shape", "content.0"),
    ("null", '"result": "NoneType"'),
    ("text", '"result": "str"'),
    ("list", '"result": "list"'),
    ("no error", '"error": "str"'),
    ("mark", "not valid Unicode JSON"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "says"), usually(ODD_ANSWERS[::5], ODD_ANSWERS))
def test_an_answer_that_is_no_message_is_one_error_at_once(tmp_path, how, says):
    made = CommandRegistry(tmp_path / "tools.json")
    made.add_server("odd", f"{ODD} {shlex.quote(how)}")
    error = call(made, "odd_text").error or ""
    assert "it took longer" not in error and "the MCP server failed" in error and says in error
    assert "pydantic" not in error and "Traceback" not in error and len(error) < 600, error


@pytest.mark.slow
def test_a_server_behind_a_url(tmp_path):
    command = [*shlex.split(SERVER), "http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            registry = CommandRegistry(tmp_path / "tools.json")
            assert registry.add_server("far", url) == [name.replace("three", "far") for name in NAMES]
            assert call(registry, "far_add", a=2, b=3).text == "5"
            assert call(registry, "far_count").text == f"1 {process.pid}"
            assert "Error executing tool fail" in (call(registry, "far_fail", how="raise").error or "")
            process.kill()
            process.wait()
            assert "the MCP server" in (call(registry, "far_add", a=2, b=3).error or "")
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["/no/such/program", f"{SERVER} nonsense", "false", "http://127.0.0.1:9/mcp"])
def test_invalid_servers_are_refused(target):
    with pytest.raises(LeapToolError):
        tools_of(server_of(target), seconds=1.0)


@pytest.mark.slow
def test_servers_are_added_used_and_removed_on_the_command_line(leap):
    done = leap("tools", "add", "three", "--mcp", SERVER)
    assert done.code == 0 and "three_add, three_shout, three_count, three_fail" in done.stderr
    assert leap("tools", "add", "three", "--mcp", SERVER).code != 0
    assert leap("tools", "add", "three", "--mcp", SERVER, "--replace").code == 0
    call = FunctionCalls((LeapFunctionCall("three_add", {"a": 2, "b": 3}),))
    assert "three_add" in leap("tools", "list", "--format", "quiet").stdout
    assert (
        next(row for row in json.loads(leap("tools", "list", "--format", "json").stdout) if row["name"] == "three_add")[
            "source"
        ]
        == "mcp"
    )
    leap.script([call], "It is five.")
    done = leap("generate", "-m", "builtin", "--tool", "three_add", "--allow-tool", "three_add", "2 and 3?")
    assert (done.code, "It is five." in done.stdout) == (0, True), done.stderr
    assert leap.runner.requests[1].messages[-1].text == "5"
    leap.script([call], "It is five.", [call], "Five again.")
    chat = ("chat", "-m", "builtin", "--tool", "three_add", "--allow-tool", "three_add")
    done = leap(*chat, stdin="2 and 3?\nAgain?\n")
    assert (done.code, "It is five." in done.stdout, "Five again." in done.stdout) == (0, True, True), done.stderr
    assert [m.text for m in leap.runner.requests[-1].messages if m.role.value == "tool"] == ["5", "5"]
    assert leap("tools", "remove", "three").code == 0
    assert "three_add" not in leap("tools", "list").stdout
    assert leap("tools", "add", "x").code == 2
    assert leap("tools", "add", "x", "--command", "cat", "--mcp", "cat").code == 2


def leap_server(leap_home, model):
    from mcp import StdioServerParameters

    environment = {"LEAP_HOME": str(leap_home), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return StdioServerParameters(
        command=sys.executable, args=["-m", "leap_cli", "mcp", "-m", model], env=environment, cwd=leap_home.parent
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "says"), [("nosuch", "there is no model 'nosuch'"), ("no/such.gguf", "such.gguf"), ("", "-m needs")]
)
def test_the_server_is_not_started_for_a_name_of_nothing(leap, name, says):
    done = leap("mcp", "-m", name)
    assert (done.code, done.stdout) == (2, "") and says in done.stderr and "Traceback" not in done.stderr


def test_the_server_is_started_for_a_model_that_it_can_download(leap, monkeypatch):
    monkeypatch.setattr("leap_cli.commands.models.mcp._serve", lambda server: asyncio.sleep(0))
    assert leap("mcp", "-m", "LFM2.5-350M").code == 0


def test_a_refusal_does_not_repeat_all_of_a_long_name():
    from leap_cli.commands.models.mcp import in_thread

    def refuse() -> None:
        raise click.UsageError("a" * 100_000)

    with pytest.raises(Exception, match="aaa") as refused:
        asyncio.run(in_thread(refuse))
    assert len(str(refused.value)) < 11_000


def test_leap_is_a_server_itself(leap_home):
    from mcp import Client

    parameters = leap_server(leap_home, "builtin")

    async def use() -> None:
        async with Client(parameters) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names == {
                *(
                    "generate",
                    "extract",
                    "decide",
                    "count_tokens",
                    "transcribe",
                    "read_document",
                    "list_indexes",
                    "search",
                ),
                *("batch", "index", "download", "list_jobs", "job_status", "job_result", "cancel_job"),
            }
            asked = {"prompt": "What is the capital of France?", "temperature": 0, "max_tokens": 40}
            answer = await client.call_tool("generate", asked)
            assert "Paris" in answer.content[0].text and not answer.is_error
            schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
            found = await client.call_tool("extract", {"text": "There are 7 apples.", "schema": schema})
            assert isinstance(json.loads(found.content[0].text)["n"], int)
            late = {"name": "late", "instructions": "Is it late?", "type": "predicate"}
            mood = {"name": "mood", "instructions": "How do they feel?", "type": "choice", "choices": ["calm", "angry"]}
            decided = await client.call_tool("decide", {"state": "I waited for weeks!", "questions": [late, mood]})
            answers = json.loads(decided.content[0].text)
            assert list(answers) == ["late", "mood"] and not decided.is_error
            assert sum(answers["mood"]["probabilities"].values()) == pytest.approx(1, abs=1e-3)
            refused = await client.call_tool("decide", {"state": "s", "questions": [late | {"type": "guess"}]})
            assert refused.is_error and "guess" in refused.content[0].text
            assert int((await client.call_tool("count_tokens", {"text": "Hello"})).content[0].text) > 3
            assert not (await client.call_tool("list_jobs", {})).is_error
            nothing = await client.call_tool("job_result", {"id": "nothing"})
            assert nothing.is_error and "there is no job" in nothing.content[0].text
            misspelt = await client.call_tool("count_tokens", {"text": "Hello", "modle": "x"})
            assert misspelt.is_error and "modle" in misspelt.content[0].text
            assert client.server_info.version == __version__

    asyncio.run(asyncio.wait_for(use(), 100))


@pytest.mark.slow
def test_leaps_server_transcribes_and_searches(leap, leap_home):
    from mcp import Client

    clip_of("do", "mi", "so").write(leap_home.parent / "up.wav")
    (leap_home.parent / "letter.eml").write_text("Subject: Lunch\nFrom: a@example.org\n\nAt noon?\n")
    (leap_home.parent / "notes.md").write_text("# Cats\n\nA cat purrs when it is content.\n")
    assert leap("index", "make", "animals", str(leap_home.parent / "notes.md"), "--keywords-only").code == 0

    async def use() -> None:
        async with Client(leap_server(leap_home, "builtin-audio")) as client:
            assert (await client.call_tool("transcribe", {"file": "up.wav"})).content[0].text == "do mi so."
            for file, part in (("-", "cannot read"), ("nothing.wav", "cannot read"), ("notes.md", "notes.md")):
                refused = await client.call_tool("transcribe", {"file": file})
                assert refused.is_error and part in refused.content[0].text
            read = await client.call_tool("read_document", {"file": "letter.eml"})
            assert read.content[0].text == "From: a@example.org\nSubject: Lunch\n\nAt noon?"
            for file, part in (("-", "no file"), ("nothing.odt", "cannot read"), ("up.wav", "not text")):
                refused = await client.call_tool("read_document", {"file": file})
                assert refused.is_error and part in refused.content[0].text, refused.content[0].text
            assert (await client.call_tool("list_indexes", {})).structured_content == {"result": ["animals"]}
            hits = await client.call_tool("search", {"index": "animals", "question": "What does a cat do?"})
            (hit,) = hits.structured_content["result"]
            assert "purrs" in hit["text"] and hit["line"] >= 1
            refused = await client.call_tool("search", {"index": "plants", "question": "Why?"})
            assert refused.is_error and "plants" in refused.content[0].text

    asyncio.run(asyncio.wait_for(use(), 100))


def tasks_extension(seen, killed=None):
    """The client's side of the tasks: the id of each is noted, and its end is waited for."""
    from typing import Any, Literal

    from mcp.client.extension import ClientExtension, ResultClaim
    from mcp_types import CallToolResult, Request, RequestParams, Result
    from pydantic import ConfigDict, Field

    class TaskParams(RequestParams):
        taskId: str  # noqa: N815

    class Task(Result):
        model_config = ConfigDict(extra="allow")
        result_type: Literal["task"] = Field("task", alias="resultType")
        taskId: str  # noqa: N815
        status: str

    class TaskNow(Result):
        model_config = ConfigDict(extra="allow")

    class Get(Request[TaskParams, Literal["tasks/get"]]):
        method: Literal["tasks/get"] = "tasks/get"
        params: TaskParams

    async def resolve(task: Task, ctx: Any) -> CallToolResult:
        seen.append(task)
        if killed is not None:
            return CallToolResult(content=[])
        while True:
            now = await ctx.session.send_request(Get(params=TaskParams(taskId=task.taskId)), TaskNow)
            value = now.model_dump(by_alias=True)
            if value["status"] != "working":
                seen.append(value)
                return CallToolResult(**value.get("result", {"content": []}))
            await asyncio.sleep(0.1)

    class Tasks(ClientExtension):
        identifier = "io.modelcontextprotocol/tasks"

        def claims(self) -> list[ResultClaim[Task]]:
            return [ResultClaim(result_type="task", model=Task, resolve=resolve)]

    return Tasks(), Get, TaskParams, TaskNow


@pytest.mark.slow
def test_long_work_is_a_task_and_a_job_for_clients_without_tasks(leap_home, tmp_path):
    from mcp import Client

    work = leap_home.parent
    (work / "in.jsonl").write_text('{"prompt": "What is the capital of France?"}\n')
    (work / "notes.md").write_text("# Cats\n\nA cat purrs.\n")
    clip_of("do", "mi", "so").write(work / "up.wav")
    seen = []
    extension, *_ = tasks_extension(seen)

    async def use() -> None:
        async with Client(leap_server(leap_home, "builtin-audio"), extensions=[extension]) as client:
            heard = await client.call_tool("transcribe", {"file": "up.wav"})
            assert "do mi so." in heard.content[0].text
            assert seen[0].status == "working" and seen[1]["status"] == "completed"
        async with Client(leap_server(leap_home, "builtin"), extensions=[extension]) as client:
            done = await client.call_tool("batch", {"prompts": "in.jsonl", "output": "out.jsonl"})
            assert not done.is_error and "Paris" in (work / "out.jsonl").read_text()
            await client.call_tool("index", {"name": "cats", "paths": ["notes.md"]})
            hits = await client.call_tool("search", {"index": "cats", "question": "What does a cat do?"})
            assert "purrs" in hits.content[0].text
            refused = await client.call_tool("batch", {"prompts": "none.jsonl", "output": "o.jsonl"})
            assert refused.is_error and "none.jsonl" in refused.content[0].text
        async with Client(leap_server(leap_home, "builtin")) as client:
            made = await client.call_tool("batch", {"prompts": "in.jsonl", "output": "other.jsonl"})
            id = json.loads(made.content[0].text)["job"]
            while True:
                state = json.loads((await client.call_tool("job_status", {"id": id})).content[0].text)
                if state["state"] == "succeeded":
                    break
                assert state["state"] in ("queued", "running"), state
                await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(use(), 200))


@pytest.mark.slow
def test_a_client_sees_the_jobs_that_it_submitted_and_no_others(leap, leap_home):
    from mcp import Client
    from mcp_types import Implementation

    work = leap_home.parent
    (work / "notes.md").write_text("A cat purrs.\n")
    of_user = leap("jobs", "folder", str(work), "--", "generate").stdout.split()[0]

    async def use(name: str, act) -> None:
        about = Implementation(name=name, version="1")
        async with Client(leap_server(leap_home, "builtin"), client_info=about) as client:

            async def ask(tool: str, **arguments):
                answer = await client.call_tool(tool, arguments)
                content = answer.structured_content or {"result": answer.content[0].text}
                return answer.is_error, content.get("result", content)

            await act(ask)

    made = []

    async def submits(ask) -> None:
        _, job = await ask("index", name="cats", paths=["notes.md"])
        made.append(job["job"])

    async def finds_it(ask) -> None:
        failed, listed = await ask("list_jobs")
        assert not failed and [each["id"] for each in listed] == made
        for tool in ("job_status", "job_result", "cancel_job"):
            assert not (await ask(tool, id=made[0]))[0]
            for other in (of_user, made[0][:1], made[0][:7], made[0] + "a", "%", "\u2028"):
                failed, said = await ask(tool, id=other)
                assert failed and "there is no job" in said, (tool, other)

    async def finds_nothing(ask) -> None:
        assert await ask("list_jobs") == (False, [])
        for tool in ("job_status", "job_result", "cancel_job"):
            assert (await ask(tool, id=made[0]))[0]

    for name, act in (("one", submits), ("one", finds_it), ("other", finds_nothing)):
        asyncio.run(asyncio.wait_for(use(name, act), 200))
    assert leap("jobs", "show", of_user, "--format", "json").code == 0


@pytest.mark.slow
def test_an_invalid_line_gets_an_error_and_the_next_is_answered(leap_home):
    opened = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    asked = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opened}),
        '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": '
        '{"name": "generate", "arguments": {"prompt": "\\ud800"}}}',
        '{"jsonrpc": "2.0", "id": "three"}',
        "{",
        json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/list"}),
    ]
    command = [sys.executable, "-m", "leap_cli", "mcp", "-m", "builtin"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=leap_home.parent,
        env={**os.environ, "LEAP_HOME": str(leap_home)},
    ) as process:
        try:
            process.stdin.write("\n".join(asked).encode() + b"\n")
            process.stdin.flush()
            answers = {}
            while 5 not in answers:
                answer = json.loads(process.stdout.readline())
                answers[answer["id"]] = answer
        finally:
            process.kill()
    codes = {id: answer.get("error", {}).get("code") for id, answer in answers.items()}
    assert codes == {1: None, 2: -32600, "three": -32600, None: -32700, 5: None}


@pytest.mark.slow
@lengths(1, 5, "kills")
def test_a_task_survives_kills_of_all_processes(leap, leap_home, kills):
    """The server, its client and the worker are killed; another client finds the task by its id, and its result."""
    from mcp import Client

    work = leap_home.parent
    (work / "in.jsonl").write_text('{"prompt": "What is the capital of France?"}\n' * 20)
    seen = []
    extension, get, params, now = tasks_extension(seen, killed=True)

    async def submit(n: int) -> None:
        async with Client(leap_server(leap_home, "builtin"), extensions=[extension]) as client:
            await client.call_tool("batch", {"prompts": "in.jsonl", "output": f"out-{n}.jsonl"})
            subprocess.run(["pkill", "-9", "-P", str(os.getpid()), "-f", "leap_cli mcp.*builtin"], check=True)

    async def ask(id: str) -> dict:
        async with Client(leap_server(leap_home, "builtin"), extensions=[extension]) as client:
            return (await client.session.send_request(get(params=params(taskId=id)), now)).model_dump(by_alias=True)

    for n in range(kills):
        try:
            asyncio.run(asyncio.wait_for(submit(n), 200))
        except BaseException as error:  # the server is gone
            assert not isinstance(error, (AssertionError, TimeoutError))
        state = json.loads(leap("jobs", "worker", "--status", "--format", "json").stdout)
        if state.get("pid"):
            os.kill(state["pid"], 9)
    assert len(seen) == kills
    for n, task in enumerate(seen):
        assert leap("jobs", "wait", task.taskId).code == 0
        value = asyncio.run(asyncio.wait_for(ask(task.taskId), 200))
        assert value["status"] == "completed" and value["result"]["structuredContent"], value
        assert len((work / f"out-{n}.jsonl").read_text().splitlines()) == 20


@pytest.mark.slow
def test_tools_whose_names_become_the_same_stay_two_and_get_no_secrets(registry, monkeypatch, tmp_path):
    for name in ("HF_TOKEN", "PGPASSWORD"):
        monkeypatch.setenv(name, "planted")
    connections.close()
    assert (call(registry, "three_a_b").text, call(registry, "three_a_b_2").text) == ("spaced", "dotted []")
    named = CommandRegistry(tmp_path / "tools.json")
    named.add_server("three", SERVER, passes=["HF_TOKEN"])
    assert call(named, "three_a_b_2").text == "dotted ['HF_TOKEN']"
    assert "planted" not in (tmp_path / "tools.json").read_text()


@pytest.mark.slow
def test_a_server_that_dies_says_why():
    with pytest.raises(LeapToolError, match="No module named 'no_such_module_of_mine'"):
        tools_of(server_of(f"{SERVER} broken"))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_one_ctrl_c_ends_the_server_at_a_terminal(leap_home):
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable, [sys.executable, "-m", "leap_cli", "mcp"], {**os.environ, "LEAP_HOME": str(leap_home)}
        )
    said, ended = b"", None
    while b"ends it" not in said:
        said += os.read(terminal, 4096)
    time.sleep(0.5)  # the server reads now
    os.write(terminal, b"\x03")
    deadline = time.monotonic() + 100
    while ended is None and time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        ended = status if done else None
        time.sleep(0.05)
    if ended is None:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    os.close(terminal)
    assert ended is not None and os.WTERMSIG(ended) == 2
