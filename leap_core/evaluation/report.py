"""All that an evaluation says, and as a page, as JUnit's XML and as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, field
from html import escape
from xml.sax.saxutils import quoteattr

from ..errors import LeapSerializationError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .cases import Case
from .results import (
    ALPHA,
    CaseResult,
    ColumnSummary,
    Comparison,
    columns_of,
    compare,
    compare_all,
    corrected,
    groups_of,
    summary_of,
)


@dataclass(frozen=True)
class Regression:
    """A column against what it was. ``others``: cases that only one side has."""

    column: str
    before: str
    comparison: Comparison
    others: int

    def is_worse(self, alpha: float) -> bool:
        """Whether it got worse, with significance."""
        return self.comparison.difference < 0 and self.comparison.differs(alpha)

    def sentence(self, alpha: float) -> str:
        """What it says, for people."""
        each = self.comparison
        changed = "is worse than" if self.is_worse(alpha) else "cannot be told apart from"
        if each.difference > 0 and each.differs(alpha):
            changed = "is better than"
        left_out = f"; {self.others} cases are only in one of both and were left out" if self.others else ""
        return (
            f"{self.column} {changed} the earlier {self.before} over {each.cases} cases ({each.difference:+.1%}, "
            f"p = {each.p:.3f}; {each.only_second} cases got worse, {each.only_first} better){left_out}"
        )


@dataclass(frozen=True)
class Report:
    """``groups``: passed and all answers by group and column. ``regressions``: against earlier results."""

    results: Sequence[CaseResult]
    facts: JsonObject
    alpha: float
    columns: Sequence[ColumnSummary]
    comparisons: Sequence[Comparison]
    groups: dict[str, dict[str, tuple[int, int]]]
    regressions: Sequence[Regression] = field(default_factory=tuple)

    def to_json(self) -> JsonObject:
        """One document, without the answers themselves."""
        return {
            **self.facts,
            "columns": [self._column(each) for each in self.columns],
            "comparisons": [{**asdict(each), "differs": each.differs(self.alpha)} for each in self.comparisons],
            "groups": {
                group: {column: {"passed": passed, "answers": total} for column, (passed, total) in counts.items()}
                for group, counts in self.groups.items()
            },
            "regressions": [
                {**asdict(each.comparison), "before": each.before, "worse": each.is_worse(self.alpha)}
                for each in self.regressions
            ],
            "alpha": self.alpha,
        }

    def _column(self, summary: ColumnSummary) -> JsonObject:
        about: JsonObject = next(
            (each for each in self.facts.get("columns", ()) if each.get("name") == summary.name), {}
        )
        return {**about, **asdict(summary)}

    @property
    def sentences(self) -> list[str]:
        """What can be distinguished, and what got worse, for people."""
        regressions = [each.sentence(self.alpha) for each in self.regressions]
        return [*(each.sentence(self.alpha) for each in self.comparisons), *regressions]


def report_of(
    results: Sequence[CaseResult], facts: JsonObject, alpha: float = ALPHA, before: Sequence[CaseResult] | None = None
) -> Report:
    """What the results say. ``before``: earlier ones to compare with. Raises LeapSerializationError where these have
    no column or no case in common."""
    columns = columns_of(results)
    memory = {each.get("name"): each.get("memory") for each in facts.get("columns", ())}
    summaries = [summary_of(name, each, memory.get(name)) for name, each in columns.items()]
    regressions = () if before is None else _regressions(columns_of(before), columns)
    return Report(results, facts, alpha, summaries, compare_all(columns), groups_of(results), regressions)


def hints_on_equals(cases: Sequence[Case], results: Sequence[CaseResult]) -> list[str]:
    """A hint for each column in which no answer equals the expected text and all contain it."""
    texts = {case.id: each.value for case in cases for each in case.expectations if each.name == "equals"}
    found = {name: [each for each in answers if each.case in texts] for name, answers in columns_of(results).items()}
    hint = (
        "all answers contain what `equals` expects, but the whole answer must equal it: `contains` finds a text within"
    )
    return [
        f"{name}: {hint}"
        for name, asked in found.items()
        if asked
        and not any(each.passed for each in asked)
        and all(any(text and text.casefold() in each.answer.casefold() for text in texts[each.case]) for each in asked)
    ]


def selected(
    results: Sequence[CaseResult],
    *,
    cases: Collection[str] = (),
    failed: bool = False,
    differs: tuple[str, str] | None = None,
) -> list[CaseResult]:
    """The answers to those cases, one case after the other. ``failed``: to cases that some column failed. ``differs``:
    to cases of which one of two columns passed more than the other."""
    by_case: dict[str, list[CaseResult]] = {}
    for each in results:
        by_case.setdefault(each.case, []).append(each)
    found = []
    for case, answers in by_case.items():
        if cases and case not in cases:
            continue
        if failed and all(each.passed for each in answers):
            continue
        if differs:
            counts = [sum(each.passed for each in answers if each.column == name) for name in differs]
            if counts[0] == counts[1]:
                continue
            answers = [each for each in answers if each.column in differs]
        found += answers
    return found


def _regressions(before: dict[str, list[CaseResult]], now: dict[str, list[CaseResult]]) -> list[Regression]:
    """Each column against the earlier one of its name, or the only one against the only one."""
    pairs = [(name, name) for name in now if name in before]
    if not pairs and len(before) == len(now) == 1:
        pairs = [(next(iter(now)), next(iter(before)))]
    if not pairs:
        raise LeapSerializationError(
            f"the earlier results have none of these columns: they have {', '.join(before)}",
            hint="compare a column of the same name, or one column with one",
        )
    comparisons = corrected([compare(now[new], before[old]) for new, old in pairs])
    regressions = []
    for (new, old), each in zip(pairs, comparisons, strict=True):
        if not each.cases:
            raise LeapSerializationError(f"the earlier results of {old} have none of these cases")
        cases = {one.case for one in now[new]} ^ {one.case for one in before[old]}
        regressions.append(Regression(new, old, each, len(cases)))
    return regressions


STYLE = """
:root { color-scheme: light dark; --ground: #fbfbf9; --card: #fff; --ink: #1c1e21; --soft: #5c6370; --line: #dcdfe4;
  --bar: #3f7fb5; --range: #16324a; --good: #22733d; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ground: #15171a; --card: #1e2125; --ink: #e6e8eb; --soft: #9aa2ad;
  --line: #343940; --bar: #4f93cc; --range: #d6e9f8; --good: #6fcf8c; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p, li { overflow-wrap: anywhere; } .soft { color: var(--soft); font-size: .9rem; }
.column { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .7rem .9rem;
  margin: .6rem 0; }
.head { display: flex; flex-wrap: wrap; gap: .2rem 1rem; justify-content: space-between; }
.head b { overflow-wrap: anywhere; } .rate { font-variant-numeric: tabular-nums; }
.track { position: relative; height: 1.1rem; margin: .4rem 0; border-radius: .3rem; background: var(--line); }
.bar { position: absolute; inset: 0 auto 0 0; border-radius: .3rem; background: var(--bar); }
.range { position: absolute; top: .5rem; height: .12rem; background: var(--range); }
.range::before, .range::after { content: ""; position: absolute; top: -.25rem; width: .12rem; height: .62rem;
  background: var(--range); } .range::before { left: 0; } .range::after { right: 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
details { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; }
summary { cursor: pointer; padding: .6rem .9rem; overflow-wrap: anywhere; }
.body { padding: 0 .9rem .7rem; } .answer { border-top: 1px solid var(--line); padding: .5rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .2rem 0; font: .9rem/1.45 ui-monospace, monospace; }
.good { color: var(--good); } .bad { color: var(--bad); } ul { margin: .3rem 0; padding-left: 1.2rem; }
"""


def html_page(report: Report) -> str:
    """The page."""
    cases = len({each.case for each in report.results})
    parts = [
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<title>leap eval</title>",
        '<meta name=viewport content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style>\n<main>\n<h1>Evaluation</h1>",
        f"<p class=soft>{cases} cases, {len(report.columns)} columns. The line on each bar is the 95 % interval.</p>",
        *(_column(each) for each in report.columns),
        _sentences(report),
        _groups(report),
        _failing(report),
        _facts(report),
        "</main>\n</html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _column(each: ColumnSummary) -> str:
    about = [f"{each.passed} of {each.answers} answers as expected"]
    about += [f"{each.errors} without an answer"] if each.errors else []
    about += [f"{each.tokens_per_second:.1f} tokens/s"] if each.tokens_per_second else []
    about += [f"first token after {each.first_token * 1000:.0f} ms"] if each.first_token else []
    about += [f"{each.memory / 1e6:.0f} MB"] if each.memory else []
    return (
        f"<section class=column><div class=head><b>{escape(each.name)}</b><span class=rate>{each.rate:.1%} "
        f"<span class=soft>({each.low:.1%} to {each.high:.1%}, {each.interval})</span></span></div>"
        f'<div class=track role=img aria-label="{each.rate:.1%}"><div class=bar style="width:{each.rate:.2%}"></div>'
        f'<div class=range style="left:{each.low:.2%};width:{each.high - each.low:.2%}"></div></div>'
        f"<div class=soft>{escape(' · '.join(about))}</div></section>"
    )


def _sentences(report: Report) -> str:
    if not report.sentences:
        return ""
    tests = " and ".join(dict.fromkeys(each.test for each in report.comparisons)) or "exact McNemar"
    listed = "".join(f"<li>{escape(each)}</li>" for each in report.sentences)
    return f"<h2>Can they be told apart?</h2><ul>{listed}</ul><p class=soft>{tests}; p corrected by Holm.</p>"


def _groups(report: Report) -> str:
    if not report.groups:
        return ""
    names = [each.name for each in report.columns]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = ""
    for group, counts in report.groups.items():
        cells = "".join("<td>{}/{}</td>".format(*counts.get(name, (0, 0))) for name in names)
        rows += f"<tr><td>{escape(group)}</td>{cells}</tr>"
    return f"<h2>Groups</h2><div class=scroll><table><tr><th>Group</th>{head}</tr>{rows}</table></div>"


def _failing(report: Report) -> str:
    found: dict[str, list[CaseResult]] = {}
    for each in selected(report.results, failed=True):
        found.setdefault(each.case, []).append(each)
    if not found:
        return "<h2>Failing cases</h2><p>None.</p>"
    cases = "".join(_case(case, answers) for case, answers in found.items())
    return f"<h2>Failing cases ({len(found)})</h2>{cases}"


def _case(case: str, answers: list[CaseResult]) -> str:
    marks = " ".join(_mark(each) for each in answers)
    body = "".join(_answer(each) for each in answers)
    return (
        f"<details><summary><b>{escape(case)}</b> {marks}</summary><div class=body>"
        f"<pre>{escape(answers[0].prompt)}</pre>{body}</div></details>"
    )


def _mark(result: CaseResult) -> str:
    sign, word = ("✓", "good") if result.passed else ("✗", "bad")
    return f'<span class={word} title="{escape(result.column, quote=True)}">{sign}</span>'


def _answer(result: CaseResult) -> str:
    repeat = f" #{result.repeat + 1}" if result.repeat else ""
    calls = "".join(
        f"<pre>{escape(each['name'])}({escape(json.dumps(each['arguments'], ensure_ascii=False))})</pre>"
        for each in result.tool_calls
    )
    problems = "".join(f"<li class=bad>{escape(each)}</li>" for each in result.problems)
    return (
        f"<div class=answer>{_mark(result)} <b>{escape(result.column + repeat)}</b>"
        f"<pre>{escape(result.answer)}</pre>{calls}{f'<ul>{problems}</ul>' if problems else ''}</div>"
    )


def _facts(report: Report) -> str:
    rows = ""
    for each in report.facts.get("columns", ()):
        told = json.dumps(each.get("fingerprint", {}), ensure_ascii=False)
        cells = (escape(str(each.get("name"))), escape(str(each.get("model"))), f"<pre>{escape(told)}</pre>")
        rows += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    if not rows:
        return ""
    made = f"leap {report.facts.get('leap', '')}; {report.facts.get('concurrency', 1)} answers at once."
    return (
        f"<details><summary>How it was made</summary><div class='body scroll'><p class=soft>{escape(made)}</p>"
        f"<table>{rows}</table></div></details>"
    )


FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
"""Characters that XML 1.0 cannot have."""


def junit_xml(report: Report) -> str:
    """The whole document. A case that was asked several times is a test for each."""
    suites = [_suite(name, results) for name, results in columns_of(report.results).items()]
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="leap eval"{_counts(report.results)}>\n'
    return f"{head}{''.join(suites)}</testsuites>\n"


def _suite(name: str, results: list[CaseResult]) -> str:
    cases = "".join(_junit_case(name, each) for each in results)
    return f"  <testsuite name={_attribute(name)}{_counts(results)}>\n{cases}  </testsuite>\n"


def _counts(results: object) -> str:
    assert isinstance(results, (list, tuple))
    errors = sum(each.error is not None for each in results)
    failures = sum(not each.passed for each in results) - errors
    return f' tests="{len(results)}" failures="{failures}" errors="{errors}" skipped="0" time="0.000"'


def _junit_case(column: str, result: CaseResult) -> str:
    repeat = f" #{result.repeat + 1}" if result.repeat else ""
    classname = f"{column}.{result.group}" if result.group else column
    head = f"    <testcase classname={_attribute(classname)} name={_attribute(result.case + repeat)}"
    if result.passed:
        return f'{head} time="0.000"/>\n'
    kind = "error" if result.error is not None else "failure"
    message = "; ".join(result.problems)
    answer = f"{result.prompt}\n\n{result.answer}"
    return (
        f'{head} time="0.000">\n      <{kind} message={_attribute(message)} type={_attribute(kind)}>'
        f"{escape(_clean(answer))}</{kind}>\n    </testcase>\n"
    )


def _attribute(text: str) -> str:
    return quoteattr(_clean(text), {"\n": "&#10;"})


def _clean(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def markdown_tables(report: Report) -> str:
    """The tables of an evaluation."""
    lines = [
        "| column | passed | 95 % interval | errors | tokens/s | first token | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in report.columns:
        speed = "" if each.tokens_per_second is None else f"{each.tokens_per_second:.1f}"
        first = "" if each.first_token is None else f"{each.first_token * 1000:.0f} ms"
        memory = "" if each.memory is None else f"{each.memory / 1e6:.0f} MB"
        cells = [_cell(each.name), f"{each.rate:.1%} of {each.cases}", f"{each.low:.1%} to {each.high:.1%}"]
        lines.append(f"| {' | '.join([*cells, str(each.errors), speed, first, memory])} |")
    if report.groups:
        names = [each.name for each in report.columns]
        lines += ["", f"| group | {' | '.join(map(_cell, names))} |", "|---" * (len(names) + 1) + "|"]
        for group, counts in report.groups.items():
            cells = ["{}/{}".format(*counts.get(name, (0, 0))) for name in names]
            lines.append(f"| {' | '.join([_cell(group), *cells])} |")
    lines += ["", *(f"- {_cell(each)}" for each in report.sentences)] if report.sentences else []
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
