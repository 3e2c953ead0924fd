"""An evaluation as JUnit's XML, which build servers show: a suite for each column, a test for each case."""

from __future__ import annotations

import re
from html import escape
from xml.sax.saxutils import quoteattr, quoteattr

from ..comparison import columns_of
from ..evaluation_results import CaseResult
from ..report import Report

FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
"""Characters that XML 1.0 cannot have."""


def junit_xml(report: Report) -> str:
    """The whole document. A case that was asked several times is a test for each."""
    suites = [_suite(name, results) for name, results in columns_of(report.results).items()]
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="leap eval"{_counts(report.results)}>\n'
    return f"{head}{''.join(suites)}</testsuites>\n"


def _suite(name: str, results: list[CaseResult]) -> str:
    cases = "".join(_case(name, each) for each in results)
    return f"  <testsuite name={_attribute(name)}{_counts(results)}>\n{cases}  </testsuite>\n"


def _counts(results: object) -> str:
    assert isinstance(results, (list, tuple))
    errors = sum(each.error is not None for each in results)
    failures = sum(not each.passed for each in results) - errors
    return f' tests="{len(results)}" failures="{failures}" errors="{errors}" skipped="0" time="0.000"'


def _case(column: str, result: CaseResult) -> str:
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
