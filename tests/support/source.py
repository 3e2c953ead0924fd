"""The source of the product, read and parsed once in a process, for the rules that are read from it."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("leap_core", "leap_cli", "jobs")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}
"""Each module's file."""


@cache
def trees() -> dict[str, ast.Module]:
    """Each module, parsed in the test and not when pytest collects it. Without the collection of garbage, which would
    go through all of the trees again and again."""
    gc.disable()
    try:
        return {name: ast.parse(path.read_text("utf-8")) for name, path in FILES.items()}
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes_of(tree: ast.Module) -> list[ast.AST]:
    """All nodes of a module."""
    return list(ast.walk(tree))
