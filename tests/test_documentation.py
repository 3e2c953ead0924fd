"""What the documentation says is what the program does."""

from __future__ import annotations

import re
from pathlib import Path

from leap_cli.config.settings import commands
from leap_cli.exit_codes import ExitCode
from leap_cli.framework.option_defaults import options_of
from leap_cli.framework.rare_names import is_by_name
from leap_core import __version__

ROOT = Path(__file__).parent.parent
COMMAND_LINE = (ROOT / "docs" / "command-line.md").read_text("utf-8")


def fenced(path: Path) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_readme_opens_with_the_two_commands_of_a_newcomer():
    assert fenced(ROOT / "README.md")[:2] == [
        ("sh", 'pip install . && leap generate "What is the capital of France?"\n'),
        ("sh", "pip install -e '.[test]' && pytest\n"),
    ]


def test_every_exit_code_is_documented():
    documented = [int(code) for code in re.findall(r"^\| (\d+) \| ", COMMAND_LINE, re.MULTILINE)]
    assert documented == sorted(ExitCode)


def test_links_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_within_pages_lead_to_headings():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target, anchor in re.findall(r"\]\(([\w./-]*)#([^)]+)\)", page.read_text("utf-8")):
            file = page.parent / target if target else page
            assert anchor in anchors_of(file), f"{page.name} links to {target}#{anchor}"


def test_every_page_starts_the_server_that_its_examples_ask():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        before, asks, _ = page.read_text("utf-8").partition("127.0.0.1:8080")
        assert not asks or "leap serve" in before, f"{page.name} asks a server that nothing started"


def test_the_version_is_one():
    assert f'\nversion = "{__version__}"\n' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_pages_use_no_former_spelling():
    options = [(path, option) for path, command in commands() for option in options_of(command)]
    former = {
        (path, name) for path, option in options if option.hidden and not is_by_name(option) for name in option.opts
    }
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for line in re.findall(r"\bleap [^`|\n]*", page.read_text("utf-8")):
            for path, name in former:
                begins = line.startswith(f"leap {path} ")
                assert not (begins and re.search(rf"[\s\[]{name}(?![\w-])", line)), f"{page.name}: {line}"
