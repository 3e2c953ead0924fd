"""The conversations that ``leap export`` is asked for, as they are or as training data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from leap_core.errors import LeapJobError, LeapSessionError

from ..framework.environment import Environment
from ..framework.output import Output
from ..input.prompt import read_text
from ..options.background import open_jobs
from ..options.tools import configured_tools
from ..options.training import Training
from .file import STANDARD, writing_to

if TYPE_CHECKING:
    from jobs.table.job import Job
    from leap_core.batch.training_data import TrainingConversation, TrainingTemplate
    from leap_core.conversation.calls import LeapFunction
    from leap_core.conversation.messages import ChatMessage
    from leap_core.conversation.sessions import Mark, Session


class Exported(NamedTuple):
    """A conversation, and what it is about. ``marks``: what a session keeps beside each message; none of others."""

    title: str
    history: Sequence[ChatMessage]
    marks: Sequence[Mark] = ()


def conversations_of(source: str, env: Environment) -> Iterator[Exported]:
    """The conversations of a session, a job or, for ``-``, in standard input. Raises LeapError where there are none."""
    if source == STANDARD:
        yield from conversations_in_input(env)
        return
    found = named(source, env)
    if isinstance(found, Exported):
        yield found
    else:
        yield Exported(found.label, history_of_job(found))


def conversations_in_input(env: Environment) -> Iterator[Exported]:
    """Those in standard input, as JSON. Raises LeapSerializationError."""
    from leap_core.conversation.transcripts import read_conversations

    for history in read_conversations(read_text(env, Output(env)), "standard input", env.cwd):
        yield Exported(next((message.text for message in history if message.role.value == "user"), ""), history)


def named(source: str, env: Environment) -> Exported | Job:
    """The session of this name or id, or the job. Raises LeapSessionError where there is none, or several."""
    sessions, jobs = _sessions(source, env), _jobs(source, env)
    if len(sessions) + len(jobs) > 1:
        ids = ", ".join([f"session {each.id}" for each in sessions] + [f"job {each.id}" for each in jobs])
        raise LeapSessionError(f"{source!r} may be several: {ids}", hint="give more of the id")
    if not sessions and not jobs:
        raise LeapSessionError(
            f"there is no session or job {source!r}", hint="leap sessions list and leap jobs list show them"
        )
    return jobs[0] if jobs else next(iter(sessions.values()))


def _sessions(reference: str, env: Environment) -> dict[Session, Exported]:
    """Those of this name or whose ids begin so, with what was said in them."""
    if not env.directories.sessions_file.exists():
        return {}
    from leap_core.conversation.sessions import SessionStore

    with SessionStore(env.directories.sessions_file) as store:
        return {
            each: Exported(each.name or each.title, store.history(each.id), store.marks(each.id))
            for each in store.matching(reference)
        }


def _jobs(reference: str, env: Environment) -> Sequence[Job]:
    """Those whose ids begin so."""
    if not env.directories.jobs_file.exists() or not reference:
        return []
    with open_jobs(env, autostart=False) as jobs:
        return [job for job in jobs.list() if job.id.startswith(reference)]


def history_of_job(job: Job) -> Sequence[ChatMessage]:
    from leap_core.conversation.messages import ChatMessage
    from leap_core.conversation.request import Request

    answer = (job.result or {}).get("message")
    if job.kind != "generate":
        raise LeapSessionError(f"the job {job.id} is a {job.kind}, and only leap generate's are conversations")
    if answer is None:
        raise LeapJobError(
            f"the job {job.id} is {job.state.value} and has no answer", hint=f"leap jobs status {job.id} shows more"
        )
    return [*Request.from_json(job.parameters).messages, ChatMessage.from_json(answer)]


Reading = Callable[[], "TrainingConversation"]


def write_training_data(env: Environment, training: Training, sources: Sequence[str], output: str | None) -> None:
    """Write those that can be trained on, and note how many were left out, and why. Without ``sources`` and others that
    ``training`` names, every session."""
    from leap_core.batch.training_data import UnfitError, redacted

    functions = configured_tools(env).functions_of_files(training.tools_files, (), Output(env).warning)
    reasons: Counter[str] = Counter()
    written = [0, 0]
    with ExitStack() as files:
        places = [files.enter_context(writing_to(output, env))]
        if training.test_share is not None:
            places.append(files.enter_context(writing_to(_test_file(str(output)), env)))
        template = _template(env, training.model)
        for read in _readings(env, training, sources, functions):
            try:
                conversation = read()
                if training.redact:
                    conversation = replace(conversation, history=redacted(conversation.history))
                lines = _lines(conversation, template, rendered=training.rendered)
            except UnfitError as error:
                reasons[str(error)] += 1
                continue
            side = int(training.test_share is not None and conversation.is_test(training.test_share))
            written[side] += 1
            Output(places[side]).text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    whole = f"{sum(written)} conversation{'' if sum(written) == 1 else 's'}"
    Output(env).note(whole if training.test_share is None else f"{whole}, {written[1]} of them for testing")
    for reason, count in reasons.most_common():
        Output(env).note(f"{count} left out: {reason}")


def _readings(
    env: Environment, training: Training, sources: Sequence[str], functions: Sequence[LeapFunction]
) -> Iterator[Reading]:
    """What makes each of the conversations, or raises UnfitError."""
    from leap_core.batch.training_data import of_history

    for source in sources:
        found: Iterable[Exported | Job] = conversations_in_input(env) if source == STANDARD else [named(source, env)]
        for each in found:
            if isinstance(each, Exported):
                yield partial(of_history, each.history, functions, each.marks, training.wanted)
            else:
                yield from _of_job(env, each, training)
    if training.batch is not None:
        from leap_core.batch.training_data import of_files

        lines, results = (env.cwd / name for name in training.batch)
        yield from of_files(lines, results, training.wanted)
    if not (sources or training.batch or training.log):
        yield from _of_sessions(env, training, functions)
    if training.log:
        yield from _of_log(env, training)


def _of_sessions(env: Environment, training: Training, functions: Sequence[LeapFunction]) -> Iterator[Reading]:
    if not env.directories.sessions_file.exists():
        return
    from leap_core.batch.training_data import UnfitError, of_history
    from leap_core.conversation.sessions import SessionStore

    def read(id: str) -> TrainingConversation:
        try:
            history = store.history(id)
        except LeapSessionError as error:
            raise UnfitError(error.message) from None
        return of_history(history, functions, store.marks(id), training.wanted)

    with SessionStore(env.directories.sessions_file) as store:
        for session in reversed(store.list()):
            yield partial(read, session.id)


def _of_log(env: Environment, training: Training) -> Iterator[Reading]:
    from leap_core.batch.training_data import of_entry
    from leap_core.conversation.prompt_log import PromptLog
    from leap_core.system.configuration import log_file

    if log_file(env.directories).is_file():
        with PromptLog(log_file(env.directories)) as log:
            entries = log.entries()
        for entry in reversed(entries):
            yield partial(of_entry, entry, training.wanted)


def _of_job(env: Environment, job: Job, training: Training) -> Iterator[Reading]:
    """The answer of a job of ``leap generate``, or those of a batch."""
    from leap_core.batch.training_data import of_answer
    from leap_core.conversation.request import Request
    from leap_core.conversation.sessions import Mark

    parameters = job.parameters
    if job.kind == "batch":
        from leap_core.batch.settings import BatchSettings
        from leap_core.batch.training_data import of_journal

        settings = BatchSettings.from_json(parameters["batch"])
        yield from of_journal(settings, env.variables, Path(parameters["cwd"]), training.wanted)
        return
    answer = history_of_job(job)[-1]
    mark = Mark(str((job.result or {}).get("finish_reason")))
    yield partial(of_answer, Request.from_json(parameters), answer, mark, training.wanted)


def _lines(conversation: TrainingConversation, template: TrainingTemplate, *, rendered: bool) -> list[dict[str, Any]]:
    parts = conversation.history, conversation.functions, conversation.passed_over
    texts = template.rendered(*parts)
    return [text.to_json() for text in texts] if rendered else [template.messages(*parts)]


def _template(env: Environment, reference: str) -> TrainingTemplate:
    """That of a model on this machine, which is opened for its vocabulary."""
    from leap_core.batch.training_data import TrainingTemplate
    from leap_core.conversation.options import ModelLoadingOptions
    from leap_core.inference.llama.model import LlamaModel
    from leap_core.models.resolving import resolve_local
    from leap_core.opening import try_local

    local = resolve_local(reference, variables=env.variables, cwd=env.cwd)
    try_local(local, ModelLoadingOptions())
    model = LlamaModel(local.path)
    try:
        return TrainingTemplate.of_model(model, local.chat_template, local.parser_name)
    finally:
        model.close()


def _test_file(output: str) -> str:
    path = Path(output)
    return str(path.with_name(f"{path.stem}.test{path.suffix or '.jsonl'}"))
