"""``leap models fit``: sums over headers and the catalogue, and the machine's memory."""

from __future__ import annotations

import json

import pytest

from leap_core.inference.gguf.header import read_gguf_header
from leap_core.inference.gguf.memory import largest_context, memory_of
from leap_core.models.builtin import model_path


def fitting(leap, *arguments: str) -> dict[str, dict]:
    done = leap("models", "fit", *arguments, "--format", "json")
    assert done.code == 0, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)}


def test_an_installed_model_is_measured_by_its_header(leap):
    small = fitting(leap, "builtin", "--slots", "1", "--context-size", "512")["builtin"]
    large = fitting(leap, "builtin")["builtin"]
    assert small["installed"] and small["fits"] and small["context"] == 512 and large["slots"] == 4
    assert large["memory"] > small["memory"] + 10_000_000


def test_keys_and_values_are_as_large_as_llama_cpp_says():
    header = read_gguf_header(model_path("builtin-vl"))
    found = memory_of(header, context_size=4096, slots=4).context
    assert found == pytest.approx(6.01 * 1024**2, rel=0.001)  # 8,192 cells, 3 layers, and 4 states of convolutions


def test_models_of_the_catalogue_by_quantization(leap):
    found = fitting(leap, "LFM2.5-350M", "LFM2.5-2.6B:q8_0", "--memory", "1GB")
    assert "LFM2.5-2.6B:Q8_0" in found and "LFM2.5-2.6B:Q4_0" not in found
    assert found["LFM2.5-350M:Q4_0"]["fits"] and found["LFM2.5-350M:Q4_0"]["longest"] > 8192
    assert found["LFM2.5-2.6B:Q8_0"]["obstacle"].startswith("takes ")
    assert found["LFM2.5-2.6B:Q8_0"]["longest"] is None


def test_all_models_and_names_only(leap):
    every = fitting(leap)
    assert len(every) > 20 and not any(each["installed"] for each in every.values())
    names = leap("models", "fit", "--memory", "2GB", "--format", "quiet").stdout.split()
    assert "LFM2.5-350M:Q4_0" in names and not any("24B" in name for name in names)


@pytest.mark.parametrize("name", ["nosuch", "LFM2.5-350M:Q9"])
def test_an_unknown_model_is_an_error(leap, name):
    done = leap("models", "fit", name)
    assert done.code != 0 and done.stderr.count("\n") == 1 and name.partition(":")[0] in done.stderr


def test_the_largest_context():
    assert largest_context(lambda size: True, 32_000) == 32_000
    assert largest_context(lambda size: size <= 5000, 32_000) == 4864
    assert largest_context(lambda size: False, 32_000) is None
