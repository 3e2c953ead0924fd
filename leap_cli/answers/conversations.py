"""The conversations that ``leap export`` is asked for: of sessions, of jobs, or from standard input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leap_core.errors import LeapJobError, LeapSessionError

from ..framework.environment import Environment
from ..framework.output import Output
from ..input.prompt import read_text
from .file import STANDARD

if TYPE_CHECKING:
    from jobs.table.job import Job
    from leap_core.messages import ChatMessage
    from leap_core.sessions.marks import Mark
    from leap_core.sessions.store import Session


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
    from leap_core.sessions.transcripts import read_conversations

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
    from leap_core.sessions.store import SessionStore

    with SessionStore(env.directories.sessions_file) as store:
        return {
            each: Exported(each.name or each.title, store.history(each.id), store.marks(each.id))
            for each in store.matching(reference)
        }


def _jobs(reference: str, env: Environment) -> Sequence[Job]:
    """Those whose ids begin so."""
    if not env.directories.jobs_file.exists() or not reference:
        return []
    from jobs.client import JobsClient

    with JobsClient(env.variables, autostart=False) as jobs:
        return [job for job in jobs.list() if job.id.startswith(reference)]


def history_of_job(job: Job) -> Sequence[ChatMessage]:
    from leap_core.messages import ChatMessage, messages_from_json

    answer = (job.result or {}).get("message")
    if job.kind != "generate":
        raise LeapJobError(f"the job {job.id} is a {job.kind}, and only leap generate's are conversations")
    if answer is None:
        raise LeapJobError(
            f"the job {job.id} is {job.state.value} and has no answer", hint=f"leap jobs status {job.id} tells more"
        )
    return [*messages_from_json(job.parameters["messages"]), ChatMessage.from_json(answer)]
