"""Rules of CONTRIBUTING.md that can be read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
WORDING = {"partition", "rpartition", "startswith", "endswith", "removeprefix", "split", "find", "index"}


def nodes(*folders: str | Path) -> Iterator[tuple[str, ast.AST]]:
    """Every node of the sources, with where it stands."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", node


def test_no_decision_hangs_on_the_wording_of_an_error():
    """Errors have fields: ``option``, ``reason``, ``path``, ``cut_by``, ``status``."""
    read = []
    for where, node in nodes("leap_core", "leap_cli", "jobs"):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WORDING:
            read += [where for name in (".message", ".hint") if ast.unparse(node.func.value).endswith(f"error{name}")]
        elif isinstance(node, ast.Compare) and any(isinstance(each, (ast.In, ast.NotIn)) for each in node.ops):
            texts = [ast.unparse(each) for each in node.comparators]
            read += [where for text in texts if text.endswith(("error.message", "error.hint", "error.problems"))]
    assert read == []


def test_no_file_is_longer_than_four_hundred_lines():
    folders = ("leap_core", "leap_cli", "jobs", "tests", "benchmarks", "scripts")
    lengths = {
        path: len(path.read_text("utf-8").splitlines()) for each in folders for path in (ROOT / each).rglob("*.py")
    }
    assert {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > 400} == {}
