"""The arrows between the rooms go down only. Read from the source, so that a forbidden import needs not be reached."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("leap_cli", "jobs", "leap_core")

FORBIDDEN = {
    "leap_core": {"leap_cli", "jobs", "click", "huey"},
    "jobs": {"leap_cli", "click"},
    "leap_cli": {"huey", "llama_cpp", "sqlite3"},
}
"""What no module of a package imports, wherever in it."""

LLAMA_ROOMS = ("leap_core.llama", "leap_core.media", "leap_core.speech")
"""The only rooms that import llama_cpp."""

HEAVY = {"llama_cpp", "numpy", "huey", "jsonschema", "jinja2", "llguidance", "rich", "prompt_toolkit", "httpx"}
HEAVY |= {"soundfile", "soxr", "platformdirs", "sqlite3", "asyncio"}

LEVELS = (
    ("errors", "shapes", "wav", "messages", "responses", "options", "database", "locks", "files", "spellings"),
    ("functions", "constraints", "templates", "text", "models", "builtin"),
    ("llama", "media", "speech"),
    ("runner", "conversation", "reply", "reply_memory", "generation", "checked", "in_process"),
    ("loading", "host", "sessions", "session_glance", "transcripts", "testing"),
)
"""leap_core's rooms, from the leaves up. A room imports from its own level and from those below."""

LATE_UPWARDS = {
    ("leap_core.options", "constraints"),  # set_response_format: a convenience on the options themselves
}
"""Imports inside functions that go up, each with its reason. At module level there are none."""


@dataclass(frozen=True)
class Import:
    """One imported module. ``late``: inside a function, so it costs nothing until that is called."""

    importer: str
    imported: str
    late: bool
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"

    def room(self) -> str | None:
        """The room of leap_core that is imported, if any."""
        parts = self.imported.split(".")
        return parts[1] if parts[0] == "leap_core" and len(parts) > 1 else None


def modules() -> Iterator[tuple[str, bool, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            yield ".".join(parts[:-1] if is_package else parts), is_package, ast.parse(path.read_text("utf-8"))


def imports() -> Iterator[Import]:
    """Every import of the three packages, those for the type checker alone left out."""
    for name, is_package, tree in modules():
        home = name.split(".") if is_package else name.split(".")[:-1]
        yield from _walk(tree, name, home, late=False)


def _walk(node: ast.AST, name: str, home: list[str], *, late: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(name, alias.name, late, child.lineno)
        elif isinstance(child, ast.ImportFrom):
            base = home[: len(home) - child.level + 1] if child.level else []
            module = ".".join(base + ([child.module] if child.module else []))
            for alias in child.names:  # "from . import x" may name a module
                yield Import(name, module if child.module else f"{module}.{alias.name}", late, child.lineno)
        inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from _walk(child, name, home, late=late or inside)


def test_the_walk_sees_late_and_relative_imports():
    seen = {(found.importer, found.imported, found.late) for found in imports()}
    assert ("leap_core.responses", "leap_core.messages", False) in seen
    assert ("leap_cli.main", "leap_cli.framework.error_boundary", True) in seen
    assert ("leap_cli.commands.generate", "leap_cli.framework.output", False) in seen


def test_packages_import_only_what_they_may_know():
    wrong = [str(i) for i in imports() if i.imported.split(".")[0] in FORBIDDEN[i.importer.split(".")[0]]]
    assert wrong == []


def test_only_the_engine_room_imports_llama_cpp():
    wrong = [
        str(i) for i in imports() if i.imported.split(".")[0] == "llama_cpp" and not i.importer.startswith(LLAMA_ROOMS)
    ]
    assert wrong == []


def test_every_room_of_the_core_has_its_level():
    known = {room for level in LEVELS for room in level}
    rooms = {name.split(".")[1] for name, _, _ in modules() if name.startswith("leap_core.")}
    assert rooms <= known, "a new room: give it its level in LEVELS"


def test_arrows_inside_the_core_go_down():
    level = {room: height for height, rooms in enumerate(LEVELS) for room in rooms}
    wrong = []
    for found in imports():
        if not found.importer.startswith("leap_core.") or found.room() is None:
            continue
        importer, imported = found.importer.split(".")[1], found.room()
        if imported not in level:  # a name of the package itself, such as its version
            continue
        allowed_late = found.late and (found.importer, imported) in LATE_UPWARDS
        if level[imported] > level[importer] and not allowed_late:
            wrong.append(str(found))
    assert wrong == []


def test_the_command_line_imports_nothing_heavy_before_it_is_needed():
    wrong = [
        str(i)
        for i in imports()
        if i.importer.startswith("leap_cli") and i.imported.split(".")[0] in HEAVY and not i.late
    ]
    assert wrong == []


def test_the_commands_import_only_light_rooms_of_the_core_at_the_top():
    """Completion imports a command's module to know its options."""
    light = {"leap_core.errors", "leap_core.messages", "leap_core.options", "leap_core.responses"}
    wrong = [
        str(i)
        for i in imports()
        if i.importer.startswith(("leap_cli.commands", "leap_cli.main", "leap_cli.framework.environment"))
        and i.imported.startswith("leap_core")
        and i.imported not in light
        and not i.late
    ]
    assert wrong == []
