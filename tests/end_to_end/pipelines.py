"""The pipelines of a page of the documentation, each with what it must have done."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from .conftest import ROOT

Check = Callable[[Path, str, str], None]


class Pipelines:
    """Those of docs/``page`` below headings of so many ``marks``."""

    def __init__(self, page: str, marks: str) -> None:
        self._text = (ROOT / "docs" / page).read_text("utf-8")
        below = rf"^{marks} ([^\n]*)\n(?:(?!##|```)[^\n]*\n)*```sh\n(.*?)^```$"
        self._scripts = dict(re.findall(below, self._text, re.MULTILINE | re.DOTALL))
        self.checks: dict[str, Check] = {}

    def after(self, heading: str) -> Callable[[Check], Check]:
        """The check of this pipeline: it gets the directory, and what went to stdout and stderr."""

        def remember(check: Check) -> Check:
            self.checks[heading] = check
            return check

        return remember

    def run(self, heading: str, type_in: Callable[..., object], directory: Path) -> None:
        """Run a pipeline in bash, and its check."""
        done = type_in("bash", "-c", f"set -eo pipefail\n{self._scripts[heading]}")
        assert done.returncode == 0, done.stderr
        self.checks[heading](directory / "work", done.stdout, done.stderr)

    def all_are_checked(self) -> None:
        assert set(self._scripts) == set(self.checks) and len(self.checks) >= 10
        assert self._text.count("```sh\n") == len(self._scripts)
