"""An evaluation as one page of HTML without any other file or script: bars with intervals, and every case that failed.
Light and dark as the reader's system is, from 320 pixels on."""

from __future__ import annotations

import json
from html import escape

from ..comparison import ColumnSummary
from ..evaluation_results import CaseResult
from ..report import Report, selected

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
