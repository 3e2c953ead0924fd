"""Print what leap needs beside llama-cpp-python, a requirement a line: for machines without a compiler."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"

if __name__ == "__main__":
    listed = PROJECT.read_text("utf-8").partition("\ndependencies = [")[2].partition("\n]")[0]
    for requirement in re.findall(r'^    "([^"]+)",', listed, re.M):
        if not requirement.startswith("llama-cpp-python"):
            print(requirement)
