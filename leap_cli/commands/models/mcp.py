"""``leap mcp``: leap's abilities for programs that speak the Model Context Protocol, over standard input and output."""

from __future__ import annotations

import hashlib
import json
import secrets
import signal
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapError, LeapJobNotFoundError, LeapUnavailableError, cut
from leap_core.system.features import is_there, own_parts

from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.error_boundary import outcome_of
from ...framework.output import Output
from ...input.files import read_bytes
from ...options.loading import MODEL_OPTION, ModelChoice, load_model, model_reference

if TYPE_CHECKING:
    from mcp.server.extension import Extension
    from mcp.server.mcpserver.tools import Tool

    from jobs.client import JobsClient, Policy
    from jobs.table.job import Job
    from leap_core.conversation.runner import ModelRunner

MOST_JOBS = 50
ABILITIES = (
    *("generate", "extract", "decide", "count_tokens", "transcribe", "read_document", "list_indexes", "search"),
    *("batch", "index", "download"),
    *("list_jobs", "job_status", "job_result", "cancel_job"),
)
FEATURES = {"search": "leap_cli.commands.models.mcp_search:abilities"}
"""Functions of ``Abilities`` that return abilities of a feature."""
NEEDED = {"decide": "leap_cli.commands.tasks.decide"}
"""What an ability is left out without."""
SLOTS = 4
"""Calls of a client that are answered at once."""


@leap_command("mcp")
@MODEL_OPTION
def command(env: Environment, /, model: str | None) -> None:
    """Run an MCP server over standard input and output: text, extraction, audio, search, jobs.

    The first call that needs the model loads it, or uses the one of leap load. A name of no model is an error at the
    start. Needs leap-edge[mcp].
    """
    import asyncio

    from leap_core import __version__

    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        raise LeapUnavailableError("leap mcp needs the mcp package", hint="pip install 'leap-edge[mcp]'") from None
    if env.stdin_is_terminal:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the thread that reads lines would wait for another one
        Output(env).note("waiting for an MCP client on standard input, which is a terminal; Ctrl-C ends it")
    if model is not None:
        from leap_core.models.resolving import Registry

        Registry(env.variables, env.cwd).can_answer(model_reference(env, model))  # a client may download it
    with Abilities(env, ModelChoice(model, command="mcp")) as abilities:
        server = MCPServer(
            "leap",
            instructions="Local language models, and background work on them.",
            version=__version__,
            log_level="ERROR",
            tools=[_tool(each) for each in abilities.offered()],
            extensions=[_tasks(abilities)],
        )
        asyncio.run(_serve(server._lowlevel_server))


async def _serve(server: Any) -> None:
    """Answer what comes on standard input. The package drops a line that it cannot read, for which a client waits."""
    import anyio
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import SessionMessage
    from mcp_types import ErrorData, JSONRPCError

    async with stdio_server() as (lines, answers), anyio.create_task_group() as group:
        requests, messages = anyio.create_memory_object_stream[SessionMessage](0)

        async def read() -> None:
            async with requests:
                async for line in lines:
                    if not isinstance(line, Exception):
                        await requests.send(line)
                        continue
                    id, code, reason = _unreadable(line)
                    error = JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=reason))
                    await answers.send(SessionMessage(error))

        group.start_soon(read)
        await server.run(messages, answers, server.create_initialization_options())


def _unreadable(error: Exception) -> tuple[str | int | None, int, str]:
    """The id of a request that is none, and why it is refused: JSON-RPC's code, and words."""
    line = error.errors()[0].get("input") if hasattr(error, "errors") else None
    try:
        request = json.loads(line) if isinstance(line, str) else line
    except (ValueError, RecursionError):
        return None, PARSE_ERROR, "the line is not JSON"
    id = request.get("id") if isinstance(request, dict) else None
    return id if isinstance(id, (str, int)) else None, INVALID_REQUEST, "the line is no request, or not valid Unicode"


TASKS = "io.modelcontextprotocol/tasks"
POLL_MILLISECONDS = 1000
PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, FAILED = -32700, -32600, -32602, -32000
SUBMITTED: ContextVar[list[str] | None] = ContextVar("submitted", default=None)
"""Where the call at hand notes the job that it has made; None where the client knows no tasks."""
CLIENT: ContextVar[str] = ContextVar("client")
"""Who asks. A client sees the jobs that it submitted, in this life of the server or an earlier one, and no others."""
NAMELESS = secrets.token_hex(8)


def _note_client(context: Any) -> None:
    about = context.session.client_params
    name = about.client_info.name if about else NAMELESS
    CLIENT.set(hashlib.sha256(name.encode()).hexdigest())


def _tasks(abilities: Abilities) -> Extension:
    """Long work as tasks (MCP 2026-07-28, SEP-1686 as an extension): a task is a job, and its id the job's, so it is
    durable before the client gets it, and there when this server and the client have gone and come again."""
    import asyncio

    from mcp.server.extension import Extension, MethodBinding
    from mcp.shared.exceptions import MCPError
    from mcp_types import RequestParams
    from pydantic import Field

    class TaskParams(RequestParams):
        task_id: str = Field(alias="taskId")

    class UpdateParams(TaskParams):
        input_responses: dict[str, Any] = Field(default_factory=dict, alias="inputResponses")

    async def job_of(context: Any, id: str) -> Any:
        _note_client(context)
        outcome = await asyncio.to_thread(outcome_of, lambda: abilities.job(id))
        if isinstance(outcome, LeapError):
            raise MCPError(code=INVALID_PARAMS, message=outcome.message)
        return outcome

    async def get(ctx: Any, params: Any) -> dict[str, Any]:
        return _task(await job_of(ctx, params.task_id), "complete")

    async def cancel(ctx: Any, params: Any) -> dict[str, Any]:
        await job_of(ctx, params.task_id)
        await abilities.cancel_job(params.task_id)
        return {}

    async def update(ctx: Any, params: Any) -> dict[str, Any]:
        await job_of(ctx, params.task_id)
        raise MCPError(code=INVALID_PARAMS, message=f"the task {params.task_id} asks for nothing")

    class Tasks(Extension):
        identifier = TASKS

        def methods(self) -> list[MethodBinding]:
            return [
                MethodBinding("tasks/get", TaskParams, get),
                MethodBinding("tasks/cancel", TaskParams, cancel),
                MethodBinding("tasks/update", UpdateParams, update),
            ]

        async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
            _note_client(ctx)
            able = ctx.session.client_capabilities
            if not (able and able.extensions and TASKS in able.extensions):
                return await call_next(ctx)
            ids: list[str] = []
            token = SUBMITTED.set(ids)
            try:
                result = await call_next(ctx)
            finally:
                SUBMITTED.reset(token)
            return _task(await job_of(ctx, ids[0]), "task") if ids else result

    return Tasks()


def _task(job: Job, result_type: str) -> dict[str, Any]:
    """A job as a task, with what came of it."""
    from datetime import datetime, timezone

    def moment(seconds: float) -> str:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")

    status = {"succeeded": "completed", "failed": "failed", "cancelled": "cancelled"}.get(job.state.value, "working")
    task: dict[str, Any] = {
        "resultType": result_type,
        "taskId": job.id,
        "status": status,
        "createdAt": moment(job.created),
        "lastUpdatedAt": moment(job.finished or job.heartbeat or job.started or job.created),
        "ttlMs": None,
        "pollIntervalMs": POLL_MILLISECONDS,
        "statusMessage": job.label + (f", {job.percent} %" if job.percent is not None else ""),
    }
    if status == "completed":
        found = job.result or {}
        text = found.get("text")
        if isinstance(text, str):  # as the tool itself gives a text
            found = {"result": text}
        content = [{"type": "text", "text": text if isinstance(text, str) else json.dumps(found)}]
        task["result"] = {"content": content, "structuredContent": found, "isError": False}
    elif status == "failed":
        task["error"] = {"code": FAILED, "message": str((job.error or {}).get("message", "failed"))}
    return task


def _tool(ability: Callable[..., Any]) -> Tool:
    """An ability as a tool that refuses arguments it does not have: a misspelt one would change nothing in silence."""
    from mcp.server.mcpserver.tools import Tool

    tool = Tool.from_function(ability)
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters["additionalProperties"] = False
    return tool


class Abilities:
    """What a client may call. It gets the docstrings and annotations."""

    def __init__(self, env: Environment, model: ModelChoice) -> None:
        self.env, self._model = env, model
        self._runner: ModelRunner | None = None

    def offered(self) -> list[Callable[..., Any]]:
        """The abilities of this installation, in the order of ABILITIES."""
        of_features = {each.__name__: each for make in own_parts(FEATURES).values() for each in make(self)}
        found = [of_features.get(name) or getattr(self, name, None) for name in ABILITIES]
        return [each for each in found if each is not None and is_there(NEEDED.get(each.__name__, __name__))]

    async def generate(
        self, prompt: str, system: str = "", max_tokens: int = 1024, temperature: float | None = None
    ) -> str:
        """Answer a prompt with a local language model."""
        return await self._answer(prompt, system, {"max_tokens": max_tokens, "temperature": temperature})

    async def extract(self, text: str, schema: dict[str, Any], instructions: str = "") -> str:
        """Extract data from a text as JSON that satisfies a JSON schema."""
        task = instructions or "Extract the data from the text."
        options = {"json_schema_constraint": json.dumps(schema), "temperature": 0.0}
        return await self._answer(f"{task}\n\n{text}", "", options)

    async def decide(self, state: str, questions: list[dict[str, Any]]) -> dict[str, Any]:
        """Answer typed questions about a state by probabilities, without writing text. Each question has a name,
        instructions and a type: predicate (is it true?), choice (with choices: two or more values), or score (with
        levels from the lowest, such as calm and angry)."""

        def work() -> dict[str, Any]:
            from leap_core.tasks.decisions.answers import answer_object, names_of
            from leap_core.tasks.decisions.deciding import decide
            from leap_core.tasks.decisions.questions import Decision, read_questions

            decision = Decision(state, read_questions(questions))
            answers = decide(self._open(), decision).answers
            return dict(zip(names_of(decision.questions), map(answer_object, answers), strict=True))

        return dict(await in_thread(work))

    async def count_tokens(self, text: str) -> int:
        """Count the tokens of the prompt that a text makes."""
        from leap_core.conversation.messages import ChatMessage

        return int(await in_thread(lambda: self._open().get_prompt_tokens_size([ChatMessage("user", text)])))

    async def transcribe(self, file: str) -> str:
        """Transcribe an audio file of this machine (WAV, FLAC, OGG, MP3); the model needs audio input."""
        if SUBMITTED.get() is not None:
            return str((await self.submit(lambda jobs: self._transcription(jobs, file)))["job"])

        def work() -> str:
            from leap_core.conversation.media.audio import naming_source
            from leap_core.tasks.transcription import read_recording, transcribe

            data = read_bytes(str(self.env.cwd / file), self.env)  # never -, which is where the protocol comes from
            with naming_source(file):
                recording = read_recording(data)
            return "\n".join(piece.text for piece in transcribe(self._open(), recording) if piece.text)

        return str(await in_thread(work))

    async def read_document(self, file: str) -> str:
        """Read the text of a document of this machine, or at a public https address: PDF, office, e-book, mail, page of
        the web, text. A form feed ends each page."""

        def work() -> str:
            from ...input.files import read_file_text

            found = read_file_text(file, self.env, is_typed=False)
            if found.problem is not None:
                raise found.problem
            notes = () if found.document is None else found.document.notes
            return found.text + "".join(f"\n[not read: {note}]" for note in notes)

        return str(await in_thread(work))

    async def batch(self, prompts: str, output: str) -> dict[str, Any]:
        """Answer many prompts in the background: one a line of a file of this machine (JSON lines, CSV or text). The
        answers go to another file, a line each. Gives the job's id; job_status shows its progress."""

        def submit(jobs: JobsClient) -> str:
            from leap_core.batch.settings import BatchSettings

            source, target = (str(self.env.cwd / path) for path in (prompts, output))
            settings = BatchSettings.of(source, target, model=model_reference(self.env, self._model.name))
            return jobs.batch(settings, cwd=self.env.cwd, policy=policy_of_client())

        return await self.submit(submit)

    async def download(self, model: str) -> dict[str, Any]:
        """Fetch a model in the background, by its name in the catalogue or on the hub. Gives the job's id."""
        return await self.submit(lambda jobs: jobs.download(model, cwd=self.env.cwd, policy=policy_of_client()))

    def _transcription(self, jobs: JobsClient, file: str) -> str:
        return jobs.transcribe(
            read_bytes(str(self.env.cwd / file), self.env),
            name=Path(file).name,
            prompt="Perform ASR.",
            longest=30.0,
            max_tokens=512,
            format="text",
            model=model_reference(self.env, self._model.name),
            loading=dict(self._model.fields),
            cwd=self.env.cwd,
            policy=policy_of_client(),
        )

    async def submit(self, submit: Callable[[JobsClient], str]) -> dict[str, Any]:
        id = str(await self._with_jobs(submit))
        if (submitted := SUBMITTED.get()) is not None:
            submitted.append(id)
        return {"job": id}

    def job(self, id: str) -> Job:
        """A job of this client's, by its whole id. Raises LeapJobNotFoundError."""
        from jobs.client import JobsClient

        with JobsClient(self.env.variables) as jobs:
            job = jobs.table.get(id)
            if job is None or job.parameters.get("client") != CLIENT.get():
                raise LeapJobNotFoundError(f"there is no job {id!r} of this client's", hint="list_jobs shows its jobs")
            return jobs.table.with_progress(job)

    async def job_status(self, id: str) -> dict[str, Any]:
        """How far a background job is: its state, percent, and what went wrong."""
        job = await in_thread(lambda: self.job(id))
        return {**_described(job), "error": job.error}

    async def list_jobs(self) -> list[dict[str, Any]]:
        """List the newest background jobs that this client submitted: id, kind, state, progress."""
        rows: list[dict[str, Any]] = await self._with_jobs(
            lambda jobs: [_described(job) for job in jobs.list(limit=MOST_JOBS, client=CLIENT.get())]
        )
        return rows

    async def job_result(self, id: str) -> dict[str, Any]:
        """The state of a background job, and its result when it has ended."""
        job = await in_thread(lambda: self.job(id))
        return {**_described(job), "result": job.result, "error": job.error}

    async def cancel_job(self, id: str) -> str:
        """Cancel a background job."""
        await self._with_jobs(lambda jobs: jobs.cancel(self.job(id).id, wait=False))
        return f"{id} is being cancelled"

    async def _answer(self, prompt: str, system: str, options: dict[str, Any]) -> str:
        return str(await in_thread(lambda: self._generate(prompt, system, options)))

    def _generate(self, prompt: str, system: str, options: dict[str, Any]) -> str:
        from leap_core.conversation.options import GenerationOptions
        from leap_core.conversation.streams import last_of

        conversation = self._open().create_conversation(system or None)
        stream = conversation.generate_response(prompt, GenerationOptions(**options))
        return last_of(stream).full_message.text

    def _open(self) -> ModelRunner:
        if self._runner is None:
            self._runner = load_model(self.env, self._model, slots=SLOTS)
        return self._runner

    async def _with_jobs(self, act: Any) -> Any:
        from jobs.client import JobsClient

        def work() -> Any:
            with JobsClient(self.env.variables) as jobs:
                return act(jobs)

        return await in_thread(work)

    def __enter__(self) -> Abilities:
        return self

    def __exit__(self, *_: object) -> None:
        if self._runner is not None:
            self._runner.unload()


async def in_thread(work: Callable[[], Any]) -> Any:
    """What ``work`` gives. The package sends a client the text of this kind of error alone."""
    import asyncio

    from mcp.server.mcpserver.exceptions import ToolError

    try:
        outcome = await asyncio.to_thread(outcome_of, work)
    except click.UsageError as error:
        raise ToolError(cut(error.format_message())) from None
    if isinstance(outcome, LeapError):
        raise ToolError(outcome.message if outcome.hint is None else f"{outcome.message} ({outcome.hint})")
    return outcome


def policy_of_client() -> Policy:
    from jobs.client import Policy

    return Policy(client=CLIENT.get())


def _described(job: Any) -> dict[str, Any]:
    return {"id": job.id, "kind": job.kind, "state": job.state.value, "percent": job.percent, "label": job.label}
