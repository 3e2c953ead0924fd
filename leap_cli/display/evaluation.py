"""An evaluation as people and programs read it: the table, what can be distinguished, and the answers to a case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.options import in_bytes
from ..framework.output import Format, Output

if TYPE_CHECKING:
    from leap_core.evaluation.report import Report
    from leap_core.evaluation.results import CaseResult

    from ..options.evaluation import Judgement

TABLE = ["column", "pass", "interval", "errors", "tokens_per_s", "first_token", "memory"]


@dataclass(frozen=True)
class Shown:
    """The results of an evaluation and what is known of its columns."""

    results: Sequence[CaseResult]
    facts: dict[str, Any]


def print_evaluation(env: Environment, shown: Shown, judgement: Judgement, *, quiet: bool) -> ExitCode:
    """Print the table, write the files that were asked for, and give the exit code that the results mean."""
    from leap_core.evaluation.report import html_page, junit_xml, markdown_tables, report_of
    from leap_core.evaluation.results import read_results
    from leap_core.system.files import replace_text

    before = None if judgement.against is None else read_results(judgement.against)[0]
    report = report_of(shown.results, shown.facts, judgement.alpha, before)
    output = Output(env)
    for path, text in ((judgement.html, html_page), (judgement.junit, junit_xml)):
        if path is not None:
            replace_text(path, text(report))
            if not quiet:
                output.note(f"wrote {path}")
    if judgement.format == "markdown":
        output.text(markdown_tables(report))
    elif judgement.format == "json":
        output.document(report.to_json())
    elif judgement.format == "jsonl":
        for each in shown.results:
            output.event(each.to_json())
    else:
        _print_table(env, report)
    return _judge(output, report, judgement)


def print_case(
    env: Environment, shown: Shown, format: str, *, cases: Sequence[str], failed: bool, differs: tuple[str, str] | None
) -> ExitCode:
    """Print the answers to those cases side by side. Raises UsageError for one that is not there."""
    from leap_core.evaluation.report import selected
    from leap_core.evaluation.results import columns_of

    columns = columns_of(shown.results)
    known = {each.case for each in shown.results}
    for case in cases:
        if case not in known:
            raise click.UsageError(f"there is no case {case!r}")
    for name in differs or ():
        if name not in columns:
            raise click.UsageError(f"there is no column {name!r}; there are {', '.join(columns)}")
    found = selected(shown.results, cases=cases, failed=failed, differs=differs)
    output = Output(env, format if format in ("json", "jsonl") else "text")
    if output.format is Format.JSON:
        output.document([each.to_json() for each in found])
    elif output.format is Format.JSONL:
        for each in found:
            output.event(each.to_json())
    else:
        last = None
        for each in found:
            if each.case != last:
                output.text(f"{'' if last is None else chr(10)}{each.case}: {each.prompt.strip()}\n")
                last = each.case
            output.text(_in_words(each))
        if not found:
            output.note("there is no such case")
    return ExitCode.DONE


def _in_words(result: CaseResult) -> str:
    mark = "passed" if result.passed else "failed"
    repeat = f" #{result.repeat + 1}" if result.repeat else ""
    calls = "".join(f"\n    {each['name']}({each['arguments']})" for each in result.tool_calls)
    answer = "\n    ".join(result.answer.strip().splitlines())
    lines = f"  [{mark}] {result.column}{repeat}: {answer}{calls}\n"
    return lines + "".join(f"    - {problem}\n" for problem in result.problems)


def _print_table(env: Environment, report: Report) -> None:
    output = Output(env)
    rows = [
        {
            "column": each.name,
            "pass": f"{each.rate:.1%} of {each.cases}",
            "interval": f"{each.low:.1%} to {each.high:.1%}",
            "errors": each.errors or None,
            "tokens_per_s": None if each.tokens_per_second is None else f"{each.tokens_per_second:.1f}",
            "first_token": None if each.first_token is None else f"{each.first_token * 1000:.0f} ms",
            "memory": None if each.memory is None else in_bytes(each.memory),
        }
        for each in report.columns
    ]
    output.records(rows, TABLE, name="column")
    if report.groups:
        output.text("\n")
        names = [each.name for each in report.columns]
        groups = [
            {"group": group, **{name: "{}/{}".format(*counts.get(name, (0, 0))) for name in names}}
            for group, counts in report.groups.items()
        ]
        output.records(groups, ["group", *names], name="group")
    for comparison in report.comparisons:
        output.text(f"{chr(10) if comparison is report.comparisons[0] else ''}{comparison.sentence(report.alpha)}\n")


def _judge(output: Output, report: Report, judgement: Judgement) -> ExitCode:
    """Say which columns are bad."""
    code = ExitCode.DONE
    for each in report.columns:
        if each.errors:
            output.warning(f"{each.name}: {each.errors} answers are missing; the same command asks for them again")
            code = ExitCode.JOB
        if judgement.least is not None and each.rate < judgement.least:
            output.warning(f"{each.name}: {each.rate:.1%} is below {judgement.least:.1%}")
            code = ExitCode.JOB
    for regression in report.regressions:
        worse = regression.is_worse(report.alpha)
        (output.warning if worse else output.note)(regression.sentence(report.alpha))
        code = ExitCode.JOB if worse else code
    return code
