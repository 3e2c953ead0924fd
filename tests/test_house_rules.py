"""Rules of CONTRIBUTING.md that can be read from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORDING = {"partition", "rpartition", "startswith", "endswith", "removeprefix", "split", "find", "index"}


def nodes(*folders: str) -> Iterator[tuple[Path, ast.AST]]:
    """Every node of the sources that have a field of an error, with its file."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            if re.search(r"error\.(message|hint|problems)", text):
                yield from ((path, node) for node in ast.walk(ast.parse(text)))


@pytest.mark.slow
def test_no_decision_depends_on_the_wording_of_an_error():
    """Errors have fields: ``option``, ``reason``, ``path``, ``cut_by``, ``status``."""
    read = []
    for path, node in nodes("leap_core", "leap_cli", "jobs"):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WORDING:
            read += [where for name in (".message", ".hint") if ast.unparse(node.func.value).endswith(f"error{name}")]
        elif isinstance(node, ast.Compare) and any(isinstance(each, (ast.In, ast.NotIn)) for each in node.ops):
            texts = [ast.unparse(each) for each in node.comparators]
            read += [where for text in texts if text.endswith(("error.message", "error.hint", "error.problems"))]
    assert read == []


def test_a_file_is_at_most_six_hundred_lines_long():
    folders = ("leap_core", "leap_cli", "jobs", "tests", "benchmarks", "scripts")
    lengths = {
        path: len(path.read_text("utf-8").splitlines()) for each in folders for path in (ROOT / each).rglob("*.py")
    }
    assert {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > 600} == {}


def test_the_paths_of_the_architecture_name_files_that_are_there():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    paths = page[page.index("## The path of each kind of work") : page.index("### Four lives")]
    parts = [path.relative_to(ROOT) for each in ("leap_core", "leap_cli", "jobs") for path in (ROOT / each).rglob("*")]
    there = {f"/{path.with_suffix('').as_posix()}" for path in parts}
    names = {re.split(r"[ .]|/\*", name)[0] for name in re.findall(r"`([^`]+)`", paths) if name.islower()}
    assert len(names) > 60
    assert {name for name in names if not any(path.endswith(f"/{name}") for path in there)} == set()


def definition(step: str) -> ast.AST:
    """The function or class of a step ``file:Class.function``."""
    path, _, names = step.partition(":")
    found: ast.AST = ast.parse((ROOT / path).read_text("utf-8"))
    for name in names.split("."):
        body = getattr(found, "body", [])
        found = next((each for each in body if getattr(each, "name", None) == name), ast.Pass())
        assert not isinstance(found, ast.Pass), f"there is no {step}"
    return found


def names_in(node: ast.AST) -> set[str]:
    own = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return own | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def test_each_step_of_the_four_request_paths_names_the_next_one():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    lives = page[page.index("### Four lives") : page.index("## Words")]
    steps = re.findall(r"^(\d+)\. `([^`]+)`$", lives, re.MULTILINE)
    assert len(steps) > 50
    for (_, before), (number, step) in zip(steps, steps[1:], strict=False):
        definition(step)
        if number != "1":
            name = re.split(r"[.:]", step)[-1]
            is_member = isinstance(definition(before), ast.ClassDef) and step.startswith(f"{before}.")
            assert is_member or name in names_in(definition(before)), f"{before} does not name {name}"


def test_the_architecture_names_every_package():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rooms = [path for each in ("leap_core", "leap_cli", "jobs") for path in (ROOT / each).iterdir() if path.is_dir()]
    names = {path.name for path in rooms if (path / "__init__.py").exists()}
    assert {name for name in names if f"{name}/" not in page} == set()
