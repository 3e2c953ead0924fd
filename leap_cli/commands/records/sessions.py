"""``leap sessions``: kept conversations, found again and looked after."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ...framework.click_classes import format_flag, leap_group
from ...framework.environment import Environment
from ...framework.options import Duration, age, in_bytes, option
from ...framework.output import YES, Format, Output, confirm_meant, confirm_removal, removal_flags
from .log import log

if TYPE_CHECKING:
    from leap_core.conversation.sessions import SessionStore

COLUMNS = ["id", "name", "messages", "age", "title"]


@leap_group("sessions")
def command() -> None:
    """Saved conversations: those of leap chat, and of leap generate with -c, --session or --save.

    A session is identified by its name, or by a prefix of its id.
    """


@command.command("list", short_help="List sessions, most recent first.")
@option("--limit", type=click.IntRange(1), help="List at most this many sessions.")
@format_flag
def list_sessions(env: Environment, /, limit: int | None, format: str) -> None:
    """List sessions, most recently used first."""
    output = Output(env, format)
    with _store(env) as store:
        sessions = store.list(limit)
        damaged = store.damaged()
    records = [each.to_json() for each in sessions]
    if output.format is Format.TEXT:
        records = [{**each.to_json(), "age": age(time.time() - each.updated)} for each in sessions]
    output.records(records, COLUMNS, name="id", none="there are no sessions; leap chat keeps what is said")
    for id in damaged:
        output.warning(f"the session {id} is damaged and passed over; leap sessions remove {id} forgets it")


@command.command(short_help="Print the messages of a session.")
@click.argument("session", metavar="SESSION")
@format_flag
def show(env: Environment, /, session: str, format: str) -> None:
    """Print a session: text without images and audio, json complete, jsonl one message per line."""
    from leap_core.conversation.transcripts import to_markdown

    output = Output(env, format)
    with _store(env) as store:
        row = store.find(session)
        history = store.history(row.id)
        marked = zip(history, store.marks(row.id), strict=True)
    messages = [{**message.to_json(), **mark.to_json()} for message, mark in marked]
    if output.format is Format.JSONL:
        for message in messages:
            output.event(message)
    elif output.format is Format.TEXT:
        output.text(to_markdown(history, row.name or row.title, _only_size))
    else:
        output.record({**row.to_json(), "messages": messages}, name="id")


@command.command(short_help="Search messages.")
@click.argument("text", nargs=-1, required=True)
@format_flag
def search(env: Environment, /, text: tuple[str, ...], format: str) -> None:
    """Find messages with all words of TEXT (or their prefixes), best first; case and accents do not matter.

    If no message matches, messages that contain TEXT as a substring are listed.
    """
    output = Output(env, format)
    query = " ".join(text)
    with _store(env) as store:
        matches = store.search(query)
    if output.format is Format.QUIET:
        output.records([{"id": id} for id in dict.fromkeys(each.session.id for each in matches)], ["id"], name="id")
        return
    records = [{**each.session.to_json(), "role": each.role, "snippet": each.snippet} for each in matches]
    output.records(records, ["id", "name", "role", "snippet"], name="id", none="no message has these words")


@command.command(short_help="Give a session a name.")
@click.argument("session", metavar="SESSION")
@click.argument("name")
@format_flag
def rename(env: Environment, /, session: str, name: str, format: str) -> None:
    """Give a session a NAME, which --session then continues; an empty one removes its name."""
    with _store(env) as store:
        id = store.find(session).id
        store.rename(id, name or None)
        renamed = store.find(id)
    Output(env, format).records([renamed.to_json()], ["id", "name", "title"], name="id")


@command.command(short_help="Delete sessions.")
@click.argument("sessions", metavar="SESSION...", nargs=-1, required=True)
@YES
@format_flag
def remove(env: Environment, /, sessions: tuple[str, ...], yes: bool, format: str) -> None:
    """Delete sessions and all their messages. If one is unknown, none is deleted."""
    with _store(env) as store:
        damaged = store.damaged()
        found = {each: None if each in damaged else store.find(each) for each in sessions}
        ids = dict.fromkeys(name if session is None else session.id for name, session in found.items())
        meant = {
            name: f"{session.id} ({session.title})"
            for name, session in found.items()
            if session is not None and name not in (session.id, session.name)
        }
        removed = list(ids) if confirm_meant(env, meant, yes=yes) else []
        for id in removed:
            store.remove(id)
    Output(env, format).records([{"id": id} for id in removed], ["id"], name="id")


@command.command(short_help="Delete old sessions.")
@click.option(
    "--older-than", type=Duration(), required=True, help="Delete sessions unchanged for this time, such as 30d."
)
@click.option("--named", is_flag=True, help="Also delete sessions with a name.")
@removal_flags
@format_flag
def prune(env: Environment, /, older_than: float, named: bool, yes: bool, dry_run: bool, format: str) -> None:
    """Delete sessions unchanged for some time; named ones are kept unless --named is given."""
    with _store(env) as store:
        sessions = store.untouched(older_than, named=named)
        what = "1 session" if len(sessions) == 1 else f"{len(sessions)} sessions"
        found = bool(sessions)
        if found and confirm_removal(env, what, yes=yes, dry_run=dry_run):
            sessions = store.prune(older_than, named=named)
        elif not dry_run:
            sessions = []
    if not found and Format(format) is Format.TEXT:
        Output(env).note("no session is that old" if named else "no session without a name is that old")
    Output(env, format).records([each.to_json() for each in sessions], ["id", "name", "title"], name="id")


def _store(env: Environment) -> SessionStore:
    from leap_core.conversation.sessions import SessionStore

    return SessionStore(env.directories.sessions_file)


def _only_size(data: bytes, suffix: str) -> str:
    """What represents images and audio where only text is shown."""
    return f"{in_bytes(len(data))} of {suffix[1:]}"


command.add_command(log)
