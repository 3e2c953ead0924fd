"""Hooks of mkdocs (mkdocs.yml): first page, navigation, command reference, tabs of HTTP and Python, and llms.txt."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
INDEX_COMMAND = "index-command"
"""The name in the site of the page of ``leap index``, whose own name is that of a section's first page."""
_LINK = re.compile(r"\[([^\]]*)\]\(([^):#\s]+)(#[^)]*)?\)")
"""A link to a file: text, path, anchor."""
_TABS = "Command line|HTTP|Python"
_SECTIONS = re.compile(rf"(?:^## (?:{_TABS})\n(?:(?!## ).*\n)*){{2,}}", re.MULTILINE)
_BLOCKS = r"(?:^```\w+\n(?:(?!```).*\n)*```\n+)+"
_LABELED = re.compile(rf"({_BLOCKS})((?:^\*\*(?:{_TABS})\*\*\n+{_BLOCKS})+)", re.MULTILINE)


def on_config(config: Any) -> None:
    folder = Path(config["docs_dir"])
    guides = [{name: pages} for name, pages in sections(folder)]
    config["nav"] = [{"Overview": "README.md"}, *guides, {"Reference": list(reference())}]


def sections(folder: Path) -> list[tuple[str, list[dict[str, str]]]]:
    """The sections of docs/README.md: the pages of each, by their titles there."""
    text = (folder / "README.md").read_text("utf-8")
    parts = re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", text, re.MULTILINE)
    return [
        (name, [{title[0].upper() + title[1:]: page} for title, page, _ in _LINK.findall(body) if "/" not in page])
        for name, body in parts
    ]


def reference() -> dict[str, str]:
    """The pages of the command reference by their paths in the site, its index first."""
    sys.path.insert(0, str(ROOT))
    from leap_cli.reference.pages import INDEX, pages

    names = sorted(pages(), key=lambda name: (name != INDEX, name))
    return {f"reference/{INDEX_COMMAND if name == 'index' else name}.md": pages()[name] for name in names}


def on_files(files: Any, config: Any) -> Any:
    for path, text in reference().items():
        files.append(File.generated(config, path, content=text))
    return files


def first_page(index: str) -> str:
    """README's beginning, which says what leap is and how to install it, before the index of the pages."""
    beginning = (ROOT / "README.md").read_text("utf-8").partition("## Features\n")[0].replace("](docs/", "](")
    return beginning + index.partition("\n")[2]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    folder = posixpath.dirname(page.file.src_uri)
    if page.file.src_uri == "README.md":
        markdown = first_page(markdown)

    def link(match: re.Match[str]) -> str:
        """Links out of docs/ work on GitHub alone, and are text here."""
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        if path.startswith("../"):
            return match[1]
        renamed = f"{INDEX_COMMAND}.md" if path == "reference/index.md" else match[2]
        return f"[{match[1]}]({renamed}{match[3] or ''})"

    return _LABELED.sub(labeled, _SECTIONS.sub(headed, _LINK.sub(link, markdown.rstrip("\n") + "\n")))


def headed(match: re.Match[str]) -> str:
    """Neighboring sections called HTTP and Python, as tabs under one heading that keeps their anchors."""
    parts = re.split(rf"^## ({_TABS})\n", match[0], flags=re.MULTILINE)[1:]
    anchors = "".join(f'<a id="{name.lower().replace(" ", "-")}"></a>' for name in parts[::2])
    return f"{anchors}\n\n## {' and '.join(parts[::2])}\n\n{tabs(parts)}"


def labeled(match: re.Match[str]) -> str:
    """Examples for the shell, and those below the words **HTTP** and **Python**, as tabs."""
    return tabs(["Command line", match[1], *re.split(rf"^\*\*({_TABS})\*\*\n", match[2], flags=re.MULTILINE)[1:]])


def tabs(parts: list[str]) -> str:
    """``parts``: a name, its text, and so on."""
    bodies = (re.sub(r"^(?=.)", "    ", body.strip("\n"), flags=re.MULTILINE) for body in parts[1::2])
    return "".join(f'=== "{name}"\n\n{body}\n\n' for name, body in zip(parts[::2], bodies, strict=True))


def on_post_build(config: Any) -> None:
    """llms.txt (llmstxt.org): each page with its first sentence."""
    from leap_cli.help.topics import first_sentence

    folder = Path(config["docs_dir"])
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}"]
    for name, pages in sections(folder):
        lines += ["", f"## {name}", ""]
        for title, page in (item for each in pages for item in each.items()):
            url = f"{config['site_url'] or ''}{page.removesuffix('.md')}/"
            lines.append(f"- [{title}]({url}): {first_sentence((folder / page).read_text('utf-8'))}")
    (Path(config["site_dir"]) / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
