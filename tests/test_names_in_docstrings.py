"""A docstring that names a module, or what a module defines, names one that exists."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from tests.support.source import FILES, PACKAGES, ROOT, nodes_of, trees

pytestmark = pytest.mark.slow

DOTTED = re.compile(r"``([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)``")
SINGLE = re.compile(r"``([a-z]\w*_\w+)(?:\(\))?``")
FILE = re.compile(r"(?<![\w./*-])((?:[A-Za-z_]\w*/)*[a-z_]\w*\.py)\b")

PATH = re.compile(r"`((?:leap_core|leap_cli|jobs|tests|docs|scripts|benchmarks)/[\w/.]+\w)/?`")
NAMES_OF = {
    **{kind: ("name",) for kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)},
    ast.Name: ("id",),
    ast.Attribute: ("attr",),
    ast.arg: ("arg",),
    ast.keyword: ("arg",),
    ast.alias: ("name", "asname"),
}
"""The fields of a node that are names."""


def names_defined(tree: ast.Module) -> set[str]:
    """What a module defines at its top, and what it imports under a name of its own."""
    found: set[str] = set()
    for node in tree.body:
        for each in ast.walk(node) if isinstance(node, (ast.If, ast.Try)) else [node]:
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(each.name)
            elif isinstance(each, (ast.Import, ast.ImportFrom)):
                found.update(alias.asname or alias.name for alias in each.names)
            elif isinstance(each, (ast.Assign, ast.AnnAssign)):
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                found.update(
                    inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)
                )
    return found


FOREIGN = {"convert_lora_to_gguf.py", "types/decision_create_params.py", "types/decision.py"}
"""Files of other projects."""
PREFIXES = ("llama_", "mtmd_", "ggml_", "not_", "call_", "stack_", "d1_")
"""Of names of llama.cpp and of Linux, and of those that are made of a prefix and something else."""
LIBRARIES = {*sys.stdlib_module_names, "click", "ray"}
ENDINGS = {"alive", "json", "jsonl", "pyi", "starting", "token", "toml"}
"""Of the names of files."""


@cache
def defined() -> dict[str, set[str]]:
    return {name: names_defined(tree) for name, tree in trees().items()}


@cache
def members() -> dict[str, set[str]]:
    """What each class of leap has, inherited from others of them."""
    own: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for tree in trees().values():
        for node in nodes_of(tree):
            if isinstance(node, ast.ClassDef):
                names = {each.name for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
                for each in ast.walk(node):
                    if isinstance(each, (ast.Attribute, ast.Name)):
                        names.update(getattr(each, field) for field in NAMES_OF[type(each)])
                own.setdefault(node.name, set()).update(names)
                bases.setdefault(node.name, []).extend(ast.unparse(base).rpartition(".")[2] for base in node.bases)

    def all_of(name: str) -> set[str]:
        return own.get(name, set()).union(*(all_of(base) for base in bases.get(name, ()) if base != name))

    return {name: all_of(name) for name in own}


def exists(name: str) -> bool:
    """Whether a dotted name is a module of leap, or something that one defines; its first parts may be left out."""
    home, _, attribute = name.rpartition(".")
    if any(f".{module}".endswith(f".{name}") for module in FILES):
        return True
    if home.rpartition(".")[2] in members():
        return attribute in members()[home.rpartition(".")[2]]
    return any(attribute in defined()[module] for module in FILES if f".{module}".endswith(f".{home}"))


def may_be_a_variable(name: str, tree: ast.Module) -> bool:
    """Whether the first part is a variable, a parameter, or a key of JSON in this module."""
    first = name.partition(".")[0]
    for node in nodes_of(tree):
        if first in (getattr(node, "id", None), getattr(node, "arg", None)):
            return True
        if isinstance(node, ast.Constant) and node.value in (first, name):
            return True
    return False


def docstrings() -> Iterator[tuple[str, ast.Module, str]]:
    """Each docstring, and each text that stands below a constant or a field, with its place."""
    for module, tree in trees().items():
        for node in nodes_of(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield f"{FILES[module].relative_to(ROOT)}:{node.lineno}", tree, str(node.value.value)


@cache
def words_of_code() -> set[str]:
    """Every name in the code, and every word of its texts that are no docstrings."""
    texts: set[str | None] = {*FILES}
    for tree in trees().values():
        docs = {id(node.value) for node in nodes_of(tree) if isinstance(node, ast.Expr)}
        for node in nodes_of(tree):
            if isinstance(node, ast.Constant):
                if isinstance(node.value, str) and id(node) not in docs:
                    texts.add(node.value)
            else:
                texts.update(getattr(node, field) for field in NAMES_OF.get(type(node), ()))
    return {word for text in texts if text for word in re.findall(r"\w+", text)}


def wrong_names(text: str, tree: ast.Module) -> Iterator[str]:
    for name in DOTTED.findall(text):
        first, last = name.split(".")[0], name.rpartition(".")[2]
        if first in LIBRARIES or last in ENDINGS or last.isupper() or first.isupper():
            continue
        if not exists(name) and not may_be_a_variable(name, tree):
            yield name
    yield from (name for name in SINGLE.findall(text) if name not in words_of_code() and not name.startswith(PREFIXES))
    for name in FILE.findall(text):
        if name not in FOREIGN and not any(f"/{path}".endswith(f"/{name}") for path in SOURCES):
            yield name


SOURCES = [
    str(path.relative_to(ROOT))
    for folder in (*PACKAGES, "tests", "scripts", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
]


def test_every_name_in_a_docstring_exists_and_one_that_does_not_is_found():
    """In one test: whatever runs it has to parse all of the source."""
    assert [f"{place} {name}" for place, tree, text in docstrings() for name in wrong_names(text, tree)] == []
    tree = ast.parse("def f(options): pass")
    text = "See ``conversation.streams.last_of``, ``Leap.load``, ``options.seed``, ``Leap.unknown``, ``gone.Thing``."
    assert list(wrong_names(text + " ``models.gguf.read``, ``gone_and_away`` and gone/away.py", tree)) == [
        *("Leap.unknown", "gone.Thing", "models.gguf.read", "gone_and_away", "gone/away.py")
    ]


def test_every_path_of_the_pages_for_contributors_exists():
    missing = []
    for page in ("CONTRIBUTING.md", "ARCHITECTURE.md"):
        for name in PATH.findall((ROOT / page).read_text("utf-8")):
            if not (ROOT / name).exists() and not (ROOT / f"{name}.py").exists():
                missing.append(f"{page}: {name}")
    assert missing == []
