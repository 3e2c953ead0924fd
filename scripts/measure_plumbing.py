"""Print what one prompt executes and how large the parts of the program are.

``python scripts/measure_plumbing.py`` traces ``leap generate "hi"`` with the built-in model, in processes of its own.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("leap_core", "leap_cli", "jobs")
LONG = 80
WINDOW = 6
"""Lines that two places must share to count as a pair."""
FEW, MANY = 2, 7
"""Tokens of the two answers whose difference is the cost of one token."""
TRACER = """
import json, os, sys, threading
from collections import Counter
root, result = sys.argv[1], sys.argv[2]
calls, opened = Counter(), Counter()
def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(root) and not frame.f_code.co_name.startswith("<"):
        calls[frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_code.co_name, frame.f_code.co_flags] += 1
def audit(event, arguments):
    if event == "open":
        opened[os.path.basename(str(arguments[0]))] += 1
from leap_cli.framework.environment import Environment
from leap_cli.main import main
env = Environment.of_process()
sys.addaudithook(audit)
threading.setprofile(profile)
sys.setprofile(profile)
code = main(sys.argv[3:], env)
sys.setprofile(None)
function = 2  # CO_NEWLOCALS: the body of a class has no locals of its own
rows = [(file, line, name, count) for (file, line, name, flags), count in calls.items() if flags & function]
with open(result, "w") as file:
    json.dump({"calls": rows, "reads": opened["config.toml"]}, file)
sys.exit(code)
"""


def trace(home: Path, tokens: int) -> dict[str, Any]:
    """What one prompt calls and reads, with an answer of at most ``tokens`` tokens."""
    result = home / "trace.json"
    prompt = ["generate", "hi", "--temperature", "0", "--max-tokens", str(tokens)]
    variables = {**os.environ, "LEAP_HOME": str(home), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", TRACER, f"{ROOT}{os.sep}", result, *prompt], env=variables, check=True)
    return dict(json.loads(result.read_text()))


def prompt_rows() -> Iterator[tuple[str, object]]:
    """What one prompt costs in files, functions, calls and reads."""
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "config.toml").write_text("")
        trace(Path(home), FEW)  # the first start fills caches
        few, many = trace(Path(home), FEW), trace(Path(home), MANY)
    calls = {(file, line, name): count for file, line, name, count in few["calls"]}
    yield "files executed by `leap generate hi` after import", len({file for file, _, _ in calls})
    yield "functions executed", len(calls)
    later = {(file, line, name): count for file, line, name, count in many["calls"]}
    extra = {key: (count - calls.get(key, 0)) / (MANY - FEW) for key, count in later.items()}
    per_token = {key: count for key, count in extra.items() if count >= 0.5}
    yield "functions of leap called for each token", len(per_token)
    yield "calls of functions of leap for each token", round(sum(extra.values()), 1)
    yield "reads of config.toml", few["reads"]
    yield "Directories made", sum(count for (_, _, name), count in calls.items() if name == "from_environment")


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def size_rows() -> Iterator[tuple[str, object]]:
    """Parameters, lengths, folders and names."""
    functions = [
        (path, node)
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    most, place = max((_parameters(node), f"{path.relative_to(ROOT)}:{node.name}") for path, node in functions)
    yield "most parameters of a function", f"{most} ({place})"
    yield f"functions above {LONG} lines", sum(_length(node) > LONG for _, node in functions)
    folders = Counter(path.parent.relative_to(ROOT) for path in sources() if path.name != "__init__.py")
    folder, count = folders.most_common(1)[0]
    yield "largest flat folder", f"{count} ({folder})"
    yield f"duplicate pairs of {WINDOW} lines or more, literal or by shape", duplicate_pairs()
    yield "lines of product", sum(len(path.read_text("utf-8").splitlines()) for path in sources())
    names = Counter(path.name for path in sources())
    yield "file names used twice or more", sum(count > 1 for count in names.values())


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def duplicate_pairs() -> int:
    """Pairs of places whose statements are the same once names and constants are blanked, imports and docstrings left
    out. Neighbouring statements make one place."""
    places: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
                if isinstance(block, list):
                    for first, shape in _windows(block):
                        places[shape].append((path, first))
    pairs = {
        (left, right, left_line - right_line)
        for each in places.values()
        for number, (left, left_line) in enumerate(each)
        for right, right_line in each[number + 1 :]
        if left != right or abs(left_line - right_line) >= WINDOW
    }
    return len(pairs)


def _windows(block: list[Any]) -> Iterator[tuple[int, str]]:
    """The shortest runs of statements of a block that fill the window: their first line and their shape."""
    statements = [each for each in block if not isinstance(each, (ast.Import, ast.ImportFrom)) and not _is_text(each)]
    for start, first in enumerate(statements):
        for end in range(start, len(statements)):
            if statements[end].end_lineno - first.lineno + 1 >= WINDOW:
                yield first.lineno, "\n".join(_shape(each) for each in statements[start : end + 1])
                break


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _shape(node: ast.AST) -> str:
    """The statement without the names of what it works on: attributes stay, so that calls of one kind are alike."""
    if isinstance(node, ast.Name):
        return "name"
    if isinstance(node, ast.Constant):
        return type(node.value).__name__
    if isinstance(node, ast.arg):
        return "argument"
    parts = [type(node).__name__]
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            parts.append(_shape(value))
        elif isinstance(value, list):
            parts += [_shape(each) for each in value if isinstance(each, ast.AST) and not _is_text(each)]
        elif field in ("attr", "arg"):
            parts.append(str(value))
    return f"({' '.join(parts)})"


def level_rows() -> Iterator[tuple[str, object]]:
    """The table of levels."""
    sys.path.insert(0, str(ROOT))
    from tests import test_imports as table

    yield "arrows up", sum(map(len, table.arrows_up().values()))
    singles = [
        room
        for room in table.room_levels()
        if room.count(".") > 1 and ROOT.joinpath(*room.split(".")).with_suffix(".py").is_file()
    ]
    yield "rooms that are one file of a folder", f"{len(singles)} ({', '.join(singles)})"


if __name__ == "__main__":
    for rows in (prompt_rows, size_rows, level_rows):
        for point, value in rows():
            print(f"{value!s:>10}  {point}" if isinstance(value, (int, float)) else f"{value}  {point}", flush=True)
