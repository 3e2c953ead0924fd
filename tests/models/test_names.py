"""What names say, and which of them may become names on this disk."""

from __future__ import annotations

import pytest

from leap_core.errors import LeapModelDownloadError
from leap_core.inference.gguf.file_names import (
    by_quantization,
    companions_of,
    directory_name,
    file_name_of_url,
    name_of,
    parts_of,
    preferred_quantization,
    safe_file_name,
    safe_repository_path,
)

VL = "LFM2.5-VL-1.6B-Q4_0.gguf LFM2.5-VL-1.6B-F16.gguf mmproj-LFM2.5-VL-1.6b-F16.gguf mmproj-LFM2.5-VL-1.6b-Q8_0.gguf"
AUDIO = [
    f"{start}LFM2.5-Audio-1.5B-{quantization}.gguf"
    for start in ("", "mmproj-", "vocoder-", "tokenizer-")
    for quantization in ("F16", "Q4_0", "Q8_0")
]


@pytest.mark.parametrize(
    ("file", "model", "quantization"),
    [
        ("LFM2.5-1.2B-Instruct-Q4_K_M.gguf", "LFM2.5-1.2B-Instruct", "Q4_K_M"),
        ("folder/lfm2-350m-q4_0.gguf", "lfm2-350m", "Q4_0"),
        ("LFM2_VL-450M-F16.gguf", "LFM2_VL-450M", "F16"),
        ("LFM2-24B-A2B-IQ4_XS-00001-of-00002.gguf", "LFM2-24B-A2B", "IQ4_XS"),
        ("leap/Q5_K_M.json", "", "Q5_K_M"),
        ("model.gguf", "model", ""),
        ("LFM2-1.2B", "LFM2-1.2B", ""),
    ],
)
def test_a_name_has_a_model_and_a_quantization(file, model, quantization):
    assert name_of(file) == (model, quantization)


def test_models_are_found_among_their_companions():
    assert by_quantization(AUDIO) == {q: f"LFM2.5-Audio-1.5B-{q}.gguf" for q in ("F16", "Q4_0", "Q8_0")}
    assert list(by_quantization(VL.split())) == ["F16", "Q4_0"]


def test_a_model_that_sees_prefers_its_projector_in_q8_0():
    found = companions_of("LFM2.5-VL-1.6B-F16.gguf", VL.split())
    assert found == {"multimodal_projector": "mmproj-LFM2.5-VL-1.6b-Q8_0.gguf"}


def test_a_model_that_hears_takes_everything_in_its_own_quantization():
    assert companions_of("LFM2.5-Audio-1.5B-Q4_0.gguf", AUDIO) == {
        "multimodal_projector": "mmproj-LFM2.5-Audio-1.5B-Q4_0.gguf",
        "audio_decoder": "vocoder-LFM2.5-Audio-1.5B-Q4_0.gguf",
        "audio_tokenizer": "tokenizer-LFM2.5-Audio-1.5B-Q4_0.gguf",
    }


def test_companions_of_other_models_are_ignored():
    files = ["LFM2-350M-Q4_0.gguf", "LFM2-VL-450M-Q4_0.gguf", "mmproj-LFM2-VL-450M-BF16.gguf"]
    assert companions_of("LFM2-350M-Q4_0.gguf", files) == {}
    assert companions_of("LFM2_VL-450M-Q4_0.gguf", files) == {"multimodal_projector": files[2]}
    assert companions_of("LFM2-350M-Q4_0.gguf", [files[0], files[2]]) == {}
    alone = companions_of("mine.gguf", ["mine.gguf", "mmproj-model-f16.gguf"])
    assert alone == {"multimodal_projector": "mmproj-model-f16.gguf"}, "as the SDK finds it beside the only model"


def test_parts_of_a_split_model_come_along():
    files = [f"Big-Q8_0-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert by_quantization(files) == {"Q8_0": files[0]}
    assert parts_of(files[0], files) == files
    assert parts_of("whole.gguf", ["whole.gguf", *files]) == ["whole.gguf"]


def test_the_preferred_quantization():
    assert preferred_quantization(["F16", "q4_0", "Q8_0"]) == "q4_0"
    assert preferred_quantization(["F16", "Q8_0"], "q8_0") == "Q8_0"
    assert preferred_quantization([""]) == ""
    assert preferred_quantization([]) is None


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x.gguf", "a/b.gguf", "a\\b.gguf", ".hidden", "-rf", "x\0.gguf", "x\n.gguf", "con", "NUL.gguf"]
    + ["x:y.gguf", "x.gguf ", "x" * 300, "a\u202eb.gguf", "x?.gguf"],
)
def test_names_that_leave_the_directory_or_hide_in_it_are_refused(name):
    with pytest.raises(LeapModelDownloadError, match="the hub names a file"):
        safe_file_name(name, "the hub")


@pytest.mark.parametrize("path", ["../x.gguf", "a/../../x.gguf", "/etc/x.gguf", "a//x.gguf", "a\\..\\x.gguf", "./x"])
def test_paths_that_leave_the_repository_are_refused(path):
    with pytest.raises(LeapModelDownloadError):
        safe_repository_path(path, "the hub")


@pytest.mark.parametrize("url", ["http://h/a/..%2F..%2Fx.gguf", "http://h/%2e%2e", "http://h/", "http://h/x%00.gguf"])
def test_names_in_urls_are_refused_too(url):
    with pytest.raises(LeapModelDownloadError):
        file_name_of_url(url)


def test_valid_names_are_kept():
    assert safe_file_name("mmproj-LFM2.5-VL-1.6b-Q8_0.gguf", "x") == "mmproj-LFM2.5-VL-1.6b-Q8_0.gguf"
    assert file_name_of_url("https://h/a%20b/Mod%C3%A8le-Q4_0.gguf?download=true") == "Modèle-Q4_0.gguf"
    assert directory_name("A model/of mine", "Q4_0") == "A-model-of-mine-Q4_0"
