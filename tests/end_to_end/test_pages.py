"""Every page of the documentation: its examples run and print what the page shows (see tests/support/pages.py).

RECORD=1 pytest -n0 tests/end_to_end/test_pages.py -k chat.md     writes the outputs that differ into the page
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leap_core.models.builtin import model_path
from tests.support.hub import FakeHub
from tests.support.pages import Block, blocks_of, is_as_shown, outputs_of, script_of, with_outputs

from .conftest import LEAP, ROOT, SHORT_ANSWERS, WARM, install

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST_WORDS, FIRST_BLOCK = 1500, 15
ADDRESS = "127.0.0.1:8080"
"""Where a page expects ``leap serve``; the tests give it a server on another port."""
HUB = ("LFM2.5-350M-Q4_K_M", "LFM2.5-230M-Q8_0", "LFM2-350M-Q4_0", "LFM2-350M-Q4_K_M", "LFM2.5-1.2B-Instruct-Q4_K_M")
"""Models that examples may download: the built-in one under these names."""
GIVEN = {
    "report.txt": "Say hello.\n",
    "papers.jsonl": '{"id": 1, "abstract": "Say hello."}\n',
    "in.jsonl": '{"prompt": "Say hello."}\n',
}


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.runs]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ``leap serve`` with the built-in models."""
    home = tmp_path_factory.mktemp("served")
    command = [*LEAP, "serve", "--port", "0", "--threads", "1"]
    with subprocess.Popen(
        command, env={**WARM, "LEAP_HOME": str(home)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip().removeprefix("http://").removesuffix("/v1")
        server.terminate()


@pytest.fixture(scope="session")
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        for name in HUB:
            hub.add_file(f"LiquidAI/{name.rpartition('-')[0]}-GGUF", f"{name}.gguf", model_path())
        yield hub


@pytest.mark.timeout(500)
@pytest.mark.skipif(shutil.which("bash") is None, reason="the examples are written for bash")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name) for page in PAGES if runnable(page)],
)
def test_examples_print_what_the_page_shows(page, variables, warm_leap, hub, request, tmp_path):
    blocks = runnable(page)
    script = script_of(blocks)
    if "jq " in script and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    directory = tmp_path / "work"
    directory.mkdir()
    for name, text in (GIVEN | {block.file: block.code for block in blocks_of(page) if block.file}).items():
        (directory / name).write_text(text, "utf-8")
    if ADDRESS in script:
        script = script.replace(ADDRESS, request.getfixturevalue("served"))
    variables |= hub.environment | SHORT_ANSWERS | {"HOME": str(tmp_path), "SHELL": "/bin/bash", "LC_ALL": "C.UTF-8"}
    programs = install(warm_leap, tmp_path).parent
    install([sys.executable], tmp_path, "python")  # that of the tests, whatever PATH has
    variables["PATH"] = f"{programs}{os.pathsep}{variables.get('PATH', os.defpath)}"
    if page.name != "quickstart.md":  # which begins without a default model
        variables["LEAP_MODEL"] = "builtin"

    def run(lines: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", lines],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=480,
            check=False,
            cwd=directory,
            env=variables,
        )

    try:
        done = run(script)
    finally:
        run("leap jobs worker --shutdown; leap unload --all")
    *outputs, last = outputs_of(done.stdout)
    assert done.returncode == 0, f"{blocks[len(outputs)].code}fails:\n{last}"
    if "RECORD" in os.environ:
        page.write_text(with_outputs(page, blocks, outputs), "utf-8")
        return
    different = [
        f"line {block.line}:\n{block.code}prints\n{output}"
        for block, output in zip(blocks, outputs, strict=True)
        if block.output is not None and not is_as_shown(block.output, output)
    ]
    assert not different, "\n".join([page.name, *different])


def what_is_wrong(page: Path) -> str | None:
    """What keeps a page from the form that all have: an example with its output first, and a bounded length."""
    text = page.read_text("utf-8")
    if (words := len(text.split())) > MOST_WORDS:
        return f"{words} words"
    first = next(iter(blocks_of(page)), None)
    if first is None or not first.runs or first.line > FIRST_BLOCK:
        return f"no runnable block within the first {FIRST_BLOCK} lines"
    return None if first.output is not None else "no output below the first block"


def test_pages_begin_with_an_example_and_are_short():
    pages = [page for page in PAGES if page.name != "README.md"]
    wrong = {page.stem: why for page in pages if (why := what_is_wrong(page))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("shown", "printed"),
    [("a … c\n", "a b c\n"), ("a\n…\n", "a\nb\nc\n"), ("a ...\n", "a b\n"), ("A  B\n", "A     B\n"), ("a\n", "a")],
)
def test_an_ellipsis_matches_any_output(shown, printed):
    assert is_as_shown(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"), [("a\n", "b\n"), ("a … c\n", "a b\n"), ("a\n", "a\nb\n"), ("…b\n", "b\nc\n")]
)
def test_a_different_output_is_reported(shown, printed):
    assert not is_as_shown(shown, printed)
