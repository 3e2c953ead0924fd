"""The recorded session of the README: how it is made, and that the one in the tree shows what the script types."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
pytest.importorskip("pty", reason="records in a pseudo-terminal, which this system does not have")
import record_session  # noqa: E402

SPACE = "{http://www.w3.org/2000/svg}"


def final_lines(picture: str) -> list[str]:
    """What the picture shows at its end, from top to bottom."""
    texts = [text for text in ElementTree.fromstring(picture).iter(f"{SPACE}text") if text.get("class") != "past"]
    return ["".join(text.itertext()) for text in sorted(texts, key=lambda text: int(text.get("y", "0")))]


def shown(text: str) -> list[str]:
    screen = record_session.Screen()
    screen.write(text)
    return ["".join(character for character, _ in row) for row in screen.rows()]


def test_a_screen_overwrites_clears_and_wraps():
    assert shown("1 of 3\r\x1b[Kdone\r\nnext") == ["done", "next"]
    assert shown("abc\rX") == ["Xbc"]
    assert [len(row) for row in map(str, shown("x" * 81))] == [80, 1]


def test_a_screen_knows_styles_and_refuses_other_codes():
    screen = record_session.Screen()
    screen.write("\x1b[1ma\x1b[22mb\x1b[36mc\x1b[0md")
    assert screen.rows() == [(("a", "bold"), ("b", ""), ("c", "c36"), ("d", ""))]
    with pytest.raises(ValueError, match="does not know"):
        screen.write("\x1b[2J")


@pytest.mark.slow
def test_a_recording_types_runs_and_cuts_pauses(tmp_path):
    (tmp_path / "note.txt").write_text("a < b & c\n")
    frames = record_session.record(("test -t 1 && cat note.txt", "sleep 1; echo end"), tmp_path, dict(os.environ))
    picture = record_session.svg(frames)
    assert final_lines(picture) == ["$ test -t 1 && cat note.txt", "a < b & c", "$ sleep 1; echo end", "end"]
    times = [now for now, _ in frames]
    assert times == sorted(times)
    assert max(b - a for a, b in zip(times, times[1:], strict=False)) <= 2 * record_session.PATIENCE + 0.2
    with pytest.raises(SystemExit, match="exit code 3"):
        record_session.record(("exit 3",), tmp_path, dict(os.environ))


def test_the_picture_of_the_readme_shows_the_commands():
    picture = (ROOT / "docs" / "session.svg").read_text("utf-8")
    lines = final_lines(picture)
    for command in record_session.COMMANDS:
        for line in command.splitlines():
            assert any(shown.removeprefix("$ ") == line for shown in lines), f"run scripts/record_session.py: {line}"
    assert any("Paris" in line for line in lines)
    assert not re.search(r"error|Traceback|/home/|/tmp/", picture)
    assert "](docs/session.svg)" in (ROOT / "README.md").read_text("utf-8")
