"""``leap help TOPIC`` at a terminal: paragraphs, tables and shell that fit, however narrow it is."""

from __future__ import annotations

import re
from importlib.metadata import PackagePath
from types import SimpleNamespace

import pytest

from leap_cli.answers.markdown import CODE
from leap_cli.framework.wrapping import columns
from leap_cli.help.guides import laid_out
from leap_cli.help.topics import text_of, topics

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 80])
def test_every_guide_fits(leap, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for topic in topics():
        done = leap("help", topic, terminal=True)
        assert done.code == 0 and done.stderr == ""
        for line in done.stdout.splitlines():
            text = ESCAPES.sub("", line).strip()
            assert columns(line) <= width or line.startswith(CODE) or " " not in text.strip(), (topic, line)
            assert not text.startswith("|-") and "](" not in ESCAPES.sub("", line) or line.startswith(CODE), (
                topic,
                line,
            )


def test_a_pipe_gets_the_page_and_a_terminal_without_colors_no_escapes(leap, monkeypatch):
    assert leap("help", "models").stdout.startswith("# Models\n") and "\n|---|---|\n" in leap("help", "models").stdout
    monkeypatch.setenv("COLUMNS", "60")
    leap.variables["NO_COLOR"] = "1"
    shown = leap("help", "models", terminal=True).stdout
    assert "\x1b" not in shown and max(map(len, shown.splitlines()[:30])) <= 60


PAGE = """# A page

The first line
goes on here, and see [the jobs](jobs.md#all), [code](../src) or [the site](https://x.org).

- one
  more
- two

| name | what it is |
|---|---|
| `a` | one \\| two |
| bb | three |

```sh
leap generate --json-schema 'name, age int' "Ada was 36."   # a comment
```
"""


def test_a_page_on_a_wide_terminal():
    assert (
        laid_out(PAGE, 80, ("jobs",))
        == """# A page

The first line goes on here, and see the jobs (`leap help jobs`), code or the site (https://x.org).

- one more
- two

NAME  WHAT IT IS
`a`     one | two
bb    three

```sh
leap generate --json-schema 'name, age int' "Ada was 36."   # a comment
```
"""
    )


def test_a_table_and_a_shell_line_on_a_narrow_terminal():
    shown = laid_out(PAGE, 15, ("jobs",))
    assert "`a`\n    one | two\nbb\n    three\n" in shown
    assert "# a comment\nleap generate \\\n    --json-schema \\\n" in shown


def test_a_table_of_three_columns_becomes_a_named_list():
    table = "| key | default | meaning |\n|---|---|---|\n| `a` | | " + "long " * 20 + "|\n"
    assert laid_out(table, 40, ()).splitlines()[:2] == ["`a`", "    meaning: " + ("long " * 20).strip()]


def test_an_installed_leap_finds_its_guides_in_share(tmp_path, monkeypatch):
    """As a wheel lays them: beside the environment's packages, whose list of files names them."""
    for name in ("share/leap-edge/docs/jobs.md", "lib/leap_core/models/builtin/jobs.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    listed = [PackagePath("..") / path.relative_to(tmp_path) for path in tmp_path.rglob("*.*") if path.is_file()]
    for path in listed:
        path.dist = SimpleNamespace(locate_file=lambda path: tmp_path / "lib" / path)
    monkeypatch.setattr("importlib.metadata.files", lambda name: listed)
    monkeypatch.setattr("leap_cli.__path__", [str(tmp_path / "lib" / "leap_cli")])
    assert text_of("jobs") == "share/leap-edge/docs/jobs.md"
    monkeypatch.setattr("importlib.metadata.files", lambda name: None)
    with pytest.raises(FileNotFoundError, match="not part of this installation"):
        text_of("jobs")
