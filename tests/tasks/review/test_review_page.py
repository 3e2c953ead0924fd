"""The page of documents to look over, as text: what it may load, and that its data is only data."""

from __future__ import annotations

import json
import os
import re
import sys
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from leap_core.tasks.evidence.evidence import Thresholds
from leap_core.tasks.review.page import page, page_data

from .reviews import HOSTILE, plain, strange


class Elements(HTMLParser):
    """Which elements a page has, and the texts of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.found and self.found[-1][0] in ("script", "style") and data.strip():
            self.texts.append(data)


def test_the_page_loads_nothing_and_its_policy_names_its_own_script_and_style():
    html = page(page_data(strange(), 0.5, "r.jsonl"))
    elements = Elements(html)
    policy = next(each["content"] for _, each in elements.found if "http-equiv" in each)
    style, data, script = elements.texts
    for kind, text in (("style", style), ("script", script)):
        assert f"{kind}-src 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy
    assert "connect-src 'self'" in page(None)
    assert not [each for _, each in elements.found if {"src", "style", "onclick"} & set(each)]
    assert [each["href"] for _, each in elements.found if "href" in each] == ["#fields"]
    assert not re.search("[<\u2028\u2029]", data) and HOSTILE in (
        each["file"] for each in json.loads(data)["documents"]
    )


def test_the_data_is_each_line_byte_for_byte_with_its_decisions_apart():
    reviews = plain()
    reviews[0].evidence[0].update(decision="correct", corrected={"a": 1.0})
    data = page_data(reviews, Thresholds(0.5), "r.jsonl")
    first, second = data["documents"]
    whole = json.loads(first["head"] + ", ".join(each["raw"] for each in first["entries"]) + "]}")
    assert (first["entries"][0]["decision"], first["entries"][0]["corrected"]) == ("correct", '{"a": 1.0}')
    assert "decision" not in whole["evidence"][0] and whole["document"] == reviews[0].document
    shown = [each.get("shown") for each in first["entries"]]
    assert shown[1:3] == ["12345678901234567890", "3.0"]
    assert [each.get("doubtful") for each in second["entries"]][:2] == [True, None]
    assert all(each["doubtful"] for each in page_data(plain(), 0.95, "r.jsonl")["documents"][0]["entries"][:4])
    assert page_data(plain(), 0.5, "r.jsonl")["digest"] != data["digest"]


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
def test_only_files_are_looked_into_for_pictures(tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    (tmp_path / "b.txt").write_bytes(b"\x89PNG...")
    data = page_data(plain(), 0.5, "r.jsonl", tmp_path)
    assert list(data["pictures"]) == ["1"] and data["pictures"]["1"]["1"].startswith("data:image/png;base64,")
