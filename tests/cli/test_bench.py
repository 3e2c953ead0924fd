"""``leap models bench`` on the built-in model: figures, their ratio to earlier ones, and the drawing."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from leap_cli.display.batches import svg_bars, text_bars


@pytest.fixture
def bench(leap, monkeypatch):
    """Measure the built-in model that sees, which is the fastest."""

    def load(reference, options):
        from leap_core import Leap

        return Leap.load(reference, options, host="never")

    monkeypatch.setattr(leap, "load", load)
    return lambda *arguments: leap("models", "bench", "builtin-vl", "--repeat", "1", *arguments)


@pytest.mark.slow
def test_figures_are_compared_with_earlier_ones_and_drawn(bench, tmp_path: Path):
    first = bench("--format", "json")
    assert first.code == 0, first.stderr
    (figures,) = json.loads(first.stdout)
    assert figures["model"] == "builtin-vl" and min(figures[key] for key in ("prefill", "decode", "batch")) > 1
    assert 0 < figures["first_token"] < 60
    (tmp_path / "before.json").write_text(json.dumps([figures | {"decode": figures["decode"] * 1_000_000}]))
    done = bench("--baseline", "before.json", "--option", "svg=out.svg")
    assert done.code == 0, done.stderr
    heading, row = done.stdout.splitlines()
    assert heading.split()[:3] == ["MODEL", "PREFILL", "DECODE"] and "(0.00x)" in row
    ElementTree.parse(tmp_path / "out.svg")


@pytest.mark.parametrize("text", ["", "[1]", '[{"model": "x", "decode": "fast"}]', "{}x"])
def test_a_file_without_figures_is_refused_before_a_model_is_loaded(leap, tmp_path: Path, text: str):
    (tmp_path / "bad.json").write_text(text)
    done = leap("models", "bench", "--baseline", "bad.json")
    assert done.code == 2 and "no figures" in done.stderr and leap.loaded == []


def test_bars_are_drawn_as_text_and_svg():
    lines = text_bars([("a", 10.0), ("long name", 5.0), ("none", 0.0)], 60)
    assert [line.count("█") for line in lines] == [39, 19, 0] and lines[1].endswith(" 5")
    assert all(len(line) <= 60 for line in lines)
    root = ElementTree.fromstring(svg_bars("<t>", [("a & b", [("x<y", 2.0), ("z", 1.0)])]))
    bars = [float(each.get("width", "")) for each in root.iter("{http://www.w3.org/2000/svg}rect") if each.get("x")]
    assert bars == [500.0, 250.0]
