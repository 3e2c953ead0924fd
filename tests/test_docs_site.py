"""The site of the documentation: every page is in its navigation, and mkdocs builds it without a warning."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}


def test_the_index_links_to_every_page_once():
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([\w-]+\.md)\)", index)
    assert set(links) == PAGES and len(links) == len(PAGES)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="needs the extra docs; .ci/run builds the site"
)
def test_mkdocs_builds_the_site_strictly(tmp_path):
    command = (sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path))
    variables = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr

    first = re.sub(r"<[^>]+>", "", (tmp_path / "index.html").read_text("utf-8"))  # newer Pygments mark each space
    assert "pip install ." in first and "command-line toolkit" in first, "what leap is and how to install it"
    llms = (tmp_path / "llms.txt").read_text("utf-8")
    assert all(f"]({name.removesuffix('.md')}/): " in llms for name in PAGES)
    assert (tmp_path / "reference" / "index-command" / "index.html").is_file(), "the page of leap index"
    searched = {
        each["location"] for each in json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    }
    assert {"structured-outputs/", "reference/generate/"} <= searched
    assert 'class="tabbed-set' in (tmp_path / "structured-outputs" / "index.html").read_text("utf-8")
    page = (tmp_path / "lora-adapters" / "index.html").read_text("utf-8")
    assert 'class="tabbed-set' in page and 'data-md-color-scheme="slate"' in page and 'id="http"' in page
