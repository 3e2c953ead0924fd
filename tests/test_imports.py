"""The arrows between the rooms go down only. Read from the source, so that a forbidden import needs not be reached."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from leap_core import _HOME
from tests.support.source import FILES, ROOT, nodes_of, trees

pytestmark = pytest.mark.slow

LEVELS = {
    "leap_cli": """
        __main__
        commands main
        talk
        chat
        answers display
        options
        setup
        completion diagnosis reference
        config
        command_table input
        help
        framework
        exit_codes
    """,
    "jobs": """
        client worker
        scheduling
        submission
        worker_process queue service_files
        configuration
        table worker_log
    """,
    "leap_core": """
        evaluation server
        batch
        opening
        protocols testing tools
        models tasks
        documents inference
        conversation
        schemas system
        errors
    """,
}
"""The rooms of each package, a level a line, from the top down. A room imports from itself and from lower lines only;
neighbours on one line do not know each other. Imports inside functions and those for the type checker count."""

FACES = {"leap_core", "jobs", "leap_cli"}
"""Packages whose ``__init__`` is no room: it offers names of the rooms below it, lazily."""

MOST_ENTRIES = 15
"""What ``leap_core`` has on its first level at most."""

NAMED_ABOVE = {
    ("leap_cli.command_table", "leap_cli.commands"),  # imported when the command is called
    ("jobs.worker_process", "jobs.worker"),  # started as a process of its own, like the one below
    ("leap_core.protocols", "leap_core.server"),
}
"""Rooms that name a module of a higher room in a text: the one way up."""

OTHER_PACKAGES = {
    "leap_core": {"leap_cli", "jobs", "click", "huey"},
    "jobs": {"leap_cli", "click"},
    "leap_cli": {"huey", "llama_cpp", "sqlite3"},
}
"""What no module of a package imports, wherever in it."""

LLAMA_ROOMS = ("leap_core.inference.llama", "leap_core.inference.speech")
"""The only rooms that import llama_cpp."""

HTTP_SERVER = {"starlette", "uvicorn"}
"""Imported in the host's process only."""

HEAVY = {"llama_cpp", "numpy", "huey", "jsonschema", "jinja2", "llguidance", "rich", "prompt_toolkit", "httpx"}
HEAVY |= {"soundfile", "soxr", "PIL", "platformdirs", "sqlite3", "asyncio"}


@dataclass(frozen=True)
class Import:
    """One imported module. ``late``: inside a function or for the type checker, so it costs nothing at start."""

    importer: str
    imported: str
    late: bool
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


@cache
def imports() -> list[Import]:
    """Every import of the three packages."""
    found = []
    for name, tree in trees().items():
        home = name.split(".")[: None if FILES[name].stem == "__init__" else -1]
        found += _walk(tree, name, home, late=False)
    return found


def _walk(node: ast.AST, name: str, home: list[str], *, late: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.expr, ast.expr_context, ast.arguments)):
            continue  # nothing is imported in there
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(name, alias.name, late, child.lineno)
        elif isinstance(child, ast.ImportFrom):
            base = home[: len(home) - child.level + 1] if child.level else []
            module = ".".join(base + ([child.module] if child.module else []))
            for alias in child.names:  # "from x import y" may name a module, or what a face offers
                full = f"{module}.{alias.name}"
                home_of_name = _HOME.get(alias.name) if module == "leap_core" else None
                offered = module if home_of_name is None else f"leap_core.{home_of_name}"
                yield Import(name, full if full in FILES else offered, late, child.lineno)
        type_only = isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
        inside = type_only or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        yield from _walk(child, name, home, late=late or inside)


@cache
def room_levels() -> dict[str, int]:
    """Each room's level, 0 at the top, by its full name."""
    return {
        f"{package}.{room}": level
        for package, table in LEVELS.items()
        for level, line in enumerate(table.split("\n"))
        for room in line.split()
    }


def room_of(module: str) -> str | None:
    """The room that holds a module; None for a face."""
    rooms = room_levels()
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in rooms), None)


def arrows_up() -> dict[tuple[str, str], list[str]]:
    """Imports from a room to another one that does not stand below it, by the two rooms."""
    rooms = room_levels()
    upward: dict[tuple[str, str], list[str]] = {}
    for each in imports():
        package = each.importer.split(".")[0]
        if each.imported.split(".")[0] != package or each.importer in FACES:
            continue
        importer, imported = room_of(each.importer), room_of(each.imported)
        if importer is None or imported is None or importer == imported:
            continue
        if rooms[imported] <= rooms[importer]:
            upward.setdefault((importer, imported), []).append(str(each))
    return upward


def test_the_walk_sees_late_relative_and_type_only_imports():
    seen = {(each.importer, each.imported, each.late) for each in imports()}
    assert ("leap_core.conversation.responses", "leap_core.conversation.messages", False) in seen
    assert ("leap_cli.main", "leap_cli.framework.error_boundary", True) in seen
    assert ("leap_cli.commands.ask.generate", "leap_cli.framework.output", False) in seen
    assert ("leap_core.inference.constraints.compiling", "leap_core.conversation.options", True) in seen


def test_every_module_belongs_to_a_layer():
    homeless = {name for name in FILES if room_of(name) is None} - FACES
    assert homeless == set(), "a new room: give it its level in LEVELS"


def test_imports_go_down():
    assert [line for lines in arrows_up().values() for line in lines] == []


def test_the_first_level_of_the_core_is_small():
    rooms = {path.stem for path in (ROOT / "leap_core").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert len({name for name in rooms if not name.startswith("_")}) <= MOST_ENTRIES


def test_a_name_of_the_packages_face_counts_as_its_room():
    tree = ast.parse("def f():\n    from leap_core import Leap, __version__")
    found = {each.imported for each in _walk(tree, "leap_core.system.locks", ["leap_core", "storage"], late=False)}
    assert found == {"leap_core.opening", "leap_core"}


def test_a_text_names_a_module_of_a_higher_room_only_where_it_must():
    rooms = room_levels()
    named = set()
    for name, tree in trees().items():
        for node in nodes_of(tree):
            if isinstance(node, ast.Constant) and node.value in FILES and "." in str(node.value):
                own, other = room_of(name) or name, room_of(str(node.value)) or str(node.value)
                if own != other and name not in FACES and rooms.get(other, 0) <= rooms[own]:
                    named.add((own, other))
    assert named == NAMED_ABOVE


def test_no_circle_between_files():
    """Late and type-only imports included; the faces, which import lazily what they offer, left out."""
    graph: dict[str, set[str]] = {}
    for each in imports():
        if each.imported in FILES and not {each.importer, each.imported} & FACES and each.importer != each.imported:
            graph.setdefault(each.importer, set()).add(each.imported)
    leaves = True
    while leaves:  # what imports nothing that is left is in no circle
        leaves = [name for name, others in graph.items() if not others & graph.keys()]
        for name in leaves:
            del graph[name]
    assert sorted(graph) == []


def test_packages_import_only_what_they_may_know():
    wrong = [str(i) for i in imports() if i.imported.split(".")[0] in OTHER_PACKAGES[i.importer.split(".")[0]]]
    assert wrong == []


def test_only_the_rooms_over_llama_cpp_import_it():
    wrong = [
        str(i) for i in imports() if i.imported.split(".")[0] == "llama_cpp" and not i.importer.startswith(LLAMA_ROOMS)
    ]
    assert wrong == []


def test_only_the_host_process_imports_an_http_server():
    wrong = [
        str(i)
        for i in imports()
        if i.imported.split(".")[0] in HTTP_SERVER and not i.importer.startswith("leap_core.server")
    ]
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
    light = {f"leap_core.conversation.{name}" for name in ("messages", "options", "loading_options", "responses")}
    light |= {"leap_core.errors", "leap_core.schemas.json_values", "leap_core.inference.speech.voices"}
    light |= {"leap_core.system.dataclass", "leap_core.system.features", "leap_core.system.memory"}
    light |= {"leap_core.protocols.host.agents"}
    wrong = [
        str(i)
        for i in imports()
        if i.importer.startswith(("leap_cli.commands", "leap_cli.main", "leap_cli.framework.environment"))
        and i.imported.startswith("leap_core")
        and i.imported not in light
        and not i.late
    ]
    assert wrong == []


def test_commands_catch_no_library_error():
    """The error boundary does; where an error is one result of many, the library or ``outcome_of`` returns it."""
    handlers = [
        f"{name}:{node.lineno}"
        for name, tree in trees().items()
        if name.startswith("leap_cli.commands")
        for node in nodes_of(tree)
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        if "Leap" in ast.unparse(node.type)
    ]
    assert handlers == []
