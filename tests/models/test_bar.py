"""The bar of ``leap download`` fits the terminal."""

from __future__ import annotations

import pytest

from leap_cli.framework.download_line import bar
from leap_cli.framework.options import in_bytes
from leap_core.models.download.downloading import Progress


@pytest.mark.parametrize("width", [20, 40, 60, 79, 100, 200])
@pytest.mark.parametrize("name", ["x", "LFM2.5-VL-1.6B-Extract-Q4_K_M.gguf", "n" * 190])
def test_the_bar_never_wraps(name, width):
    line = bar(Progress(name, 123_456_789, 2_000_000_000, 12_345_678.0, 3725.0), width)
    assert len(line) <= width and (width < 60 or "123 MB of 2.0 GB" in line)


def test_the_bar_shows_name_size_and_speed():
    line = bar(Progress("LFM2-350M-Q4_0.gguf", 50, 100, 10.0, 5.0), 100)
    assert line == "LFM2-350M-Q4_0.gguf [########........] 50 % 50 B of 100 B 10 B/s 0:05"
    assert "100 %" in bar(Progress("empty", 0, 0, 0.0, None), 100)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (219_311_264, "219 MB"), (10**13, "10.0 TB")]
)
def test_sizes_are_human_readable(count, text):
    assert in_bytes(count) == text
