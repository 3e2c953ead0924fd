"""An evaluation as Markdown: the tables and what they allow to say."""

from __future__ import annotations

from ..report import Report


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
