"""leap's own tools."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from leap_core.tools.builtin_tools import calculate, current_time, read_file


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * -4", "-20"),
        ("2 ** 10", "1024"),
        ("2^10", "1024"),
        ("7 / 2", "3.5"),
        ("6 / 2", "3"),
        ("7 // 2 + 7 % 2", "4"),
        ("sqrt(16) + max(1, 2)", "6"),
        ("round(pi, 2)", "3.14"),
        ("6 × 7 ÷ 2", "21"),
        ("0 ** 0", "1"),
    ],
)
def test_expressions_are_calculated(expression: str, result: str):
    assert calculate(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "__import__('os')",
        "(1).__class__",
        "'a' * 3",
        "[1]",
        "1 if 1 else 2",
        "9 ** 9 ** 9",
        "10.0 ** 400",
        "1 / 0",
        "(-8) ** 0.5",
        "sqrt(-1)",
        "x",
        "open('f')",
        "1e400",
        "-1e400 * 0",
        "1 << 1000",
        "True + 1",
        "(" * 5000,
        "10 ** 1999 * 10 ** 1999 * 10 ** 1999 * 10 ** 1999",
    ],
)
def test_invalid_expressions_are_refused(expression: str):
    with pytest.raises((ValueError, ArithmeticError)):
        calculate(expression)


def test_the_current_time_is_returned():
    assert datetime.fromisoformat(current_time()).tzinfo is not None
    assert datetime.fromisoformat(current_time("UTC")).utcoffset().total_seconds() == 0
    with pytest.raises(ValueError, match="not a time zone"):
        current_time("Mars/Base")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (inside / "deep" / "note.txt").write_text("grüße", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret")
    return inside


def test_files_below_the_directory_are_read(directory: Path):
    assert read_file("deep/note.txt", str(directory)) == "grüße"
    assert read_file("./deep//note.txt", str(directory)) == "grüße"


@pytest.mark.parametrize("path", ["../secret.txt", "deep/../../secret.txt", "/etc/passwd", "", ".", "deep", "none.txt"])
def test_files_outside_the_directory_are_not_read(directory: Path, path: str):
    with pytest.raises(ValueError):
        read_file(path, str(directory))


@pytest.mark.skipif(os.name != "posix", reason="symbolic links need rights here")
def test_no_symbolic_link_leads_out(directory: Path):
    (directory / "link.txt").symlink_to("../secret.txt")
    (directory / "up").symlink_to("..")
    os.mkfifo(directory / "pipe")
    for path in ("link.txt", "up/secret.txt", "pipe"):
        with pytest.raises(ValueError):
            read_file(path, str(directory))
