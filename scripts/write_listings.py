"""Puts the output of ``leap … --help`` into the listings of docs/command-line.md, where ``$ leap … --help`` stands.

python scripts/write_listings.py
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from leap_cli.framework.environment import Environment  # noqa: E402
from leap_cli.main import main  # noqa: E402

PAGE = ROOT / "docs" / "command-line.md"
LISTING = re.compile(r"^```text\n\$ leap (.*)\n(?:.*\n)*?```$", re.MULTILINE)


def filled_in(page: str) -> str:
    """The page with every listing as the program prints it now."""
    os.environ["COLUMNS"] = "80"
    return LISTING.sub(lambda match: f"```text\n$ leap {match[1]}\n{_printed(match[1].split())}```", page)


def _printed(arguments: list[str]) -> str:
    env = Environment(variables={"LEAP_HOME": os.devnull})
    if main(arguments, env):
        raise SystemExit(env.stderr.getvalue())  # type: ignore[attr-defined]
    return env.stdout.getvalue()  # type: ignore[attr-defined, no-any-return]


if __name__ == "__main__":
    PAGE.write_text(filled_in(PAGE.read_text("utf-8")), "utf-8")
