"""The files of the page, and answers as HTML for it."""

from __future__ import annotations

import re

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from leap_core.server.page.routes import FILES, LONGEST_RENDERED, MARKDOWN_PATH, PAGES, page_routes, to_html


@pytest.fixture(scope="module")
def client():
    return TestClient(Starlette(routes=page_routes()))


def test_every_file_of_the_page_is_served_under_the_strict_policy(client):
    assert {path.name for path in FILES.iterdir()} == set(PAGES.values())
    for path in PAGES:
        policy = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy and "unsafe" not in policy
    page = client.get("/").text
    assert not re.search(r"<script>|<style|style=|\bon\w+=", page), "nothing inline"
    imported = {name for path in FILES.glob("*.js") for name in re.findall(r'from "\./(.+?)"', path.read_text("utf-8"))}
    assert imported < set(PAGES.values())


def test_markdown_becomes_html(client):
    texts = ["**Paris** is `it`", "| a | b |\n|---|---|\n| 1 | 2 |", "# Title", "```python\nx < 1\n```"]
    html = client.post(MARKDOWN_PATH, json={"texts": texts}).json()["html"]
    assert html[0] == "<p><strong>Paris</strong> is <code>it</code></p>\n"
    assert "<th>a</th>" in html[1] and "<td>2</td>" in html[1]
    assert html[2] == "<h4>Title</h4>\n"  # below the page's own
    assert html[3] == '<pre><code class="language-python">x &lt; 1\n</code></pre>\n'


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[a](javascript:alert(1))",
        "[a](data:text/html,x)",
        "[a](JaVaScRiPt:alert(1))",
        "![a](http://example.com/spy.png)",
        "<style>body{display:none}</style>",
        '[a](http://b.c "x\\" onclick=\\"alert(1)")',
        '<http://a.b/"onmouseover=alert(1)>',
        '```x"onclick=alert(1)\ny\n```',
        "<iframe src=//a.b></iframe><form action=//a.b><input>",
    ],
)
def test_markup_in_answers_is_escaped(text):
    found = re.findall(r"<(\w+)((?:\s+[\w-]+=\"[^\"]*\")*)\s*>", to_html(text))
    assert {name for name, _ in found} <= {"p", "a", "pre", "code"}
    attributes = {name for _, given in found for name in re.findall(r"([\w-]+)=\"", given)}
    assert attributes <= {"href", "title", "target", "rel", "class"}
    assert all(href.startswith("http") for href in re.findall(r'href="([^"]*)"', to_html(text)))


def test_long_texts_stay_as_they_are(client):
    assert client.post(MARKDOWN_PATH, json={"texts": ["x" * LONGEST_RENDERED, "y"]}).json() == {"html": [None, None]}
