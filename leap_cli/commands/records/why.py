"""``leap why``: why a request took so long, or ended so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ...framework.click_classes import format_flag, leap_command
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...options.loading import MODEL, ModelChoice

if TYPE_CHECKING:
    from leap_core.conversation.prompt_log import Entry
    from leap_core.conversation.request_causes import Cause

HEALTHY = "nothing unusual"


@leap_command("why")
@click.argument("id", metavar="[REQUEST]", required=False)
@click.option("--replay", is_flag=True, help="Run the request again with the change, and print both times.")
@MODEL
@format_flag
def command(env: Environment, /, id: str | None, replay: bool, model: ModelChoice, format: str) -> None:
    """Explain why a request took so long or ended as it did: the cause first, then the one change that would help.

    REQUEST is the number of a log entry (see leap sessions log), or the X-Request-Id of a request to leap serve, which
    keeps the last 256 in memory. The default is the last request.
    """
    from leap_core.conversation.request_causes import RequestEnd, causes_of, course_of
    from leap_core.conversation.request_facts import RequestFacts

    request = _found(env, id)
    facts = RequestFacts.from_json(request["facts"])
    end = RequestEnd(
        request["seconds"] + facts.loading,
        request["finish"],
        request.get("error"),
        request.get("options", {}),
        served="entry" not in request,
    )
    causes = causes_of(facts, end)
    record = {"id": request["id"], "model": request["model"], "seconds": round(end.seconds, 3)}
    runs = _replayed(env, request.get("entry"), causes, model) if replay else {}
    output = Output(env, format)
    if output.format is not Format.TEXT:
        listed = [cause.to_json() for cause in causes]
        output.record({**record, "causes": listed, "facts": facts.to_json(), **runs}, name="id")
        return
    unexplained = f"the request failed: {end.error}" if end.error else HEALTHY
    output.text(f"{causes[0].text if causes else unexplained}\n")
    if causes:
        output.text(f"change: {causes[0].change}\n")
    for cause in causes[1:]:
        output.text(f"also: {cause.text}\n")
    course = {**record, "seconds": f"{end.seconds:.2f}", **course_of(facts, end)}
    for name, run in runs.items():
        course[name.replace("_", " ")] = f"{run['seconds']:.2f} s {run['ended']}".rstrip()
    output.record(course, name="id")


def _found(env: Environment, id: str | None) -> dict[str, Any]:
    """The request with this id, or the last one. Raises UsageError where there is none."""
    from leap_core.conversation.prompt_log import PromptLog
    from leap_core.protocols.host.served_models import served_requests
    from leap_core.system.configuration import log_file

    file, entry = log_file(env.directories), None
    if file.is_file() and (id is None or id.isdecimal()):
        with PromptLog(file) as log:
            entry = log.get(None if id is None else min(int(id), 2**63 - 1))
    served = [] if id is not None and entry is not None else served_requests(env.directories.run_path)
    found = [request for request in served if id is None or request["id"] == id]
    if entry is not None:
        found.append({**vars(entry), "entry": entry})
    if not found:
        which = "no request is known" if id is None else f"there is no request {id:.64}"
        raise click.UsageError(
            f"{which}; leap sessions log on logs commands from now on, and leap serve keeps its last requests"
        )
    return max(found, key=lambda request: request["asked"])


def _replayed(env: Environment, entry: Entry | None, causes: list[Cause], model: ModelChoice) -> dict[str, Any]:
    """Both times. Raises UsageError where there is nothing to change, or the request is not in the log."""
    from leap_core.conversation.replaying import replay
    from leap_core.conversation.runner import ModelRunner

    from ...options.loading import load_model

    if entry is None:
        raise click.UsageError("--replay is for entries of the log: a server does not keep what was said")
    if not causes:
        raise click.UsageError(f"{HEALTHY} in entry {entry.id}: there is no change to try")

    quiet = replace(env, variables={**env.variables, "LEAP_LOG": "0"})

    def open_runner(context_size: int | None) -> ModelRunner:
        fields = dict(model.fields) | ({} if context_size is None else {"context_size": context_size})
        return load_model(quiet, replace(model, name=model.name or entry.model, fields=fields))

    before, after = replay(entry, causes[0], open_runner)
    return {"as_it_was": before.to_json(), "with_the_change": after.to_json()}
