"""Downloads as people see them: the plan, and what came of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from leap_core.errors import LeapError

from ..exit_codes import ExitCode
from ..framework.download_line import DownloadPrinter
from ..framework.error_boundary import exit_code_of
from ..framework.options import in_bytes
from ..framework.output import Format, Output

if TYPE_CHECKING:
    from leap_core.models.download.plan import DownloadPlan
    from leap_core.models.resolving import LocalModel


def plan_records(plan: DownloadPlan) -> list[dict[str, Any]]:
    """The files that a download would fetch, as records."""
    return [
        {
            "file": file.name,
            "role": file.role,
            "bytes": file.remote.size,
            "size": in_bytes(file.remote.size),
            "destination": str(plan.directory / file.name),
            "url": file.remote.url,
            "sha256": file.remote.sha256,
        }
        for file in plan.files
    ]


class DownloadReport:
    """Reports the downloads of ``models``. Of one alone an error is raised; of several it is printed, and the others go
    on."""

    def __init__(self, output: Output, models: Sequence[str]) -> None:
        self._output = output
        self._several = self._is_list = len(models) > 1
        self._documents: list[dict[str, Any]] = []
        self._code = ExitCode.DONE
        self._next: str | None = None

    def printer(self, model: str) -> DownloadPrinter:
        """Shows the events of one download."""
        self._printer = DownloadPrinter(self._output, model if self._several else None)
        return self._printer

    def take(self, model: str, outcome: LocalModel | LeapError) -> None:
        """A download has ended."""
        if isinstance(outcome, LeapError):
            self._fail(model, outcome)
            return
        if self._output.format is Format.JSON:
            named = {"reference": model} if self._several else {}
            installed = {"model": outcome.model_id, "path": str(outcome.path), "kind": outcome.kind}
            self._documents.append({**named, **installed})
        elif self._output.format is not Format.JSONL:
            self._output.text(f"{outcome.path}\n")
        if self._printer.usable and self._next is None:
            self._next = outcome.model_id

    def take_plan(self, model: str, plan: DownloadPlan | None | LeapError) -> None:
        """What a download would do."""
        output = self._output
        if isinstance(plan, LeapError):
            self._fail(model, plan)
            return
        name = f"{model}: " if self._several else ""
        if plan is None:
            output.note(f"{name}this is on this machine already; nothing would be fetched")
            return
        for notice in plan.notices:
            output.note(f"{name}{notice}")
        named = {"reference": model} if self._several else {}
        records = [{**named, **record} for record in plan_records(plan)]
        if output.format is Format.JSON:
            self._documents += records
            self._is_list = True
        else:
            output.records(records, ["file", "role", "size", "destination"], name="destination")
        if output.format is Format.TEXT:
            output.note(f"{name}{in_bytes(plan.total_bytes)} in all; nothing was fetched")

    def take_job(self, model: str, id: str | LeapError) -> None:
        """A download was handed to the background."""
        if isinstance(id, LeapError):
            self._fail(model, id)
            return
        value = {"id": id, "reference": model} if self._several else {"id": id}
        if self._output.format is Format.JSON:
            self._documents.append(value)
        elif self._output.format is Format.JSONL:
            self._output.event(value)
        else:
            self._output.text(f"{id}\n")

    def end(self) -> ExitCode:
        """Print what belongs at the end; the exit code of the first that failed."""
        if self._output.format is Format.JSON and (self._documents or self._is_list):
            self._output.document(self._documents if self._is_list else self._documents[0])
        if self._output.format is Format.TEXT and self._next is not None:
            self._output.note(f'next: leap -m {self._next} "…", or leap models default {self._next}')
        return self._code

    def _fail(self, model: str, error: LeapError) -> None:
        if not self._several:
            raise error
        if self._code is ExitCode.DONE:
            self._code = exit_code_of(error)
        self._output.error(f"{model}: {error.message}", error.hint)
        value = {"reference": model, "error": error.message, "hint": error.hint}
        if self._output.format is Format.JSON:
            self._documents.append(value)
        elif self._output.format is Format.JSONL:
            self._output.event(value)
