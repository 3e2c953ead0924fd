"""Manifests: read, written, created, and told what is wrong with them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from leap_core.conversation.options import SamplingDefaults
from leap_core.errors import LeapSerializationError
from leap_core.models.manifest import Manifest, locate, parse_manifest, problems_of, read_manifest, write_manifest
from leap_core.models.model_files import create_manifest

PUBLISHED = {
    "inference_type": "llama.cpp/text-to-text",
    "schema_version": "1.0.0",
    "load_time_parameters": {"model": "../LFM2-350M-ENJP-MT-Q5_K_M.gguf"},
    "generation_time_parameters": {
        "sampling_parameters": {"temperature": 0.3, "min_p": 0.15, "repetition_penalty": 1.05}
    },
}


def changed(path: str, value: object) -> bytes:
    copy = json.loads(json.dumps(PUBLISHED))
    *way, last = path.split(".")
    place = copy
    for key in way:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(copy).encode()


def test_a_published_manifest_is_read():
    manifest = parse_manifest(json.dumps(PUBLISHED))
    assert manifest.model == "../LFM2-350M-ENJP-MT-Q5_K_M.gguf" and manifest.kind == "text"
    assert manifest.sampling == SamplingDefaults(temperature=0.3, min_p=0.15, repetition_penalty=1.05)
    assert manifest.to_json() == PUBLISHED


def test_paths_in_a_manifest_need_not_be_valid_unicode(tmp_path: Path):
    manifest = Manifest("m.gguf", path_on_disk=os.fsdecode(b"/caf\xe9/m.gguf"))
    write_manifest(manifest, tmp_path / "m.json")
    assert read_manifest(tmp_path / "m.json") == manifest


def test_a_written_manifest_is_read_back(tmp_path: Path):
    manifest = Manifest(
        "main.gguf",
        "llama.cpp/lfm2-audio-v1",
        multimodal_projector="mmproj.gguf",
        audio_decoder="vocoder.gguf",
        audio_tokenizer="tokenizer.gguf",
        chat_template="{{ messages }} – „so“",
        sampling=SamplingDefaults(temperature=0.0, top_k=64),
        threads=4,
        original_url="https://h/m.json",
        path_on_disk="/x/main.gguf",
        record={"model": "M", "files": {}},
    )
    write_manifest(manifest, tmp_path / "m.json")
    assert read_manifest(tmp_path / "m.json") == manifest


@pytest.mark.parametrize(
    ("path", "value", "where", "message"),
    [
        ("inferenceType", "x", "inferenceType", "did you mean 'inference_type'?"),
        ("load_time_parameters.mmproj", "x", "load_time_parameters.mmproj", "did you mean 'multimodal_projector'?"),
        (
            "load_time_parameters.chatTemplate",
            "x",
            "load_time_parameters.chatTemplate",
            "did you mean 'chat_template'?",
        ),
        ("load_time_parameters.model", None, "load_time_parameters.model", "is missing"),
        ("load_time_parameters.model", 3, "load_time_parameters.model", "expected a string, not 3"),
        ("load_time_parameters.model", "x.bundle", "load_time_parameters.model", "ExecuTorch bundle"),
        ("load_time_parameters", [], "load_time_parameters", "expected an object"),
        ("schema_version", "2.0.0", "schema_version", "'2.0.0' is not supported"),
        ("schema_version", None, "schema_version", "is missing"),
        ("inference_type", "llama.cpp/text", "inference_type", "did you mean 'llama.cpp/text-to-text'?"),
        ("inference_type", "executorch", "inference_type", "it is one of llama.cpp/text-to-text"),
        ("inference_type", "llama.cpp/image-to-text", "load_time_parameters.multimodal_projector", "needs it"),
        (
            "generation_time_parameters.sampling_parameters.repeat_penalty",
            1.1,
            "generation_time_parameters.sampling_parameters.repeat_penalty",
            "did you mean 'repetition_penalty'?",
        ),
        (
            "generation_time_parameters.sampling_parameters.temprature",
            1.1,
            "generation_time_parameters.sampling_parameters.temprature",
            "did you mean 'temperature'?",
        ),
        (
            "generation_time_parameters.sampling_parameters.top_p",
            7,
            "generation_time_parameters.sampling_parameters.top_p",
            "7 must be between 0 and 1",
        ),
        (
            "generation_time_parameters.number_of_decoding_threads",
            "four",
            "generation_time_parameters.number_of_decoding_threads",
            "expected a whole number",
        ),
        ("load_time_parameters.model", "http://[bad/x.gguf", "load_time_parameters.model", "is no URL"),
    ],
)
def test_an_error_names_the_key_and_suggests_one(path, value, where, message):
    text = changed(path, value)
    assert [p for p in problems_of(text, "m.json") if p.is_error and p.path == where and message in p.message]
    with pytest.raises(LeapSerializationError, match="^m.json: "):
        parse_manifest(text, "m.json")


@pytest.mark.parametrize("text", [b"", b"not json", b"[]", b"\xff\xfe", b"[" * 100_000, b"null", b'{"a": NaN'])
def test_an_invalid_manifest_is_one_error(text):
    problems = problems_of(text, "m.json")
    assert len(problems) == 1 and problems[0].is_error
    with pytest.raises(LeapSerializationError):
        parse_manifest(text, "m.json")


def test_an_unknown_key_is_only_a_warning():
    text = changed("something_else_entirely", 1)
    assert [p.is_error for p in problems_of(text, "m")] == [False]
    assert parse_manifest(text).model


@pytest.mark.parametrize(
    ("value", "base", "expected"),
    [
        ("../x.gguf", "https://h/o/r/resolve/main/leap/Q4_0.json", "https://h/o/r/resolve/main/x.gguf"),
        ("../deep/x.gguf", "https://h/o/r/resolve/main/leap/Q4_0.json", "https://h/o/r/resolve/main/x.gguf"),
        ("./x.gguf", "https://h/a/m.json", "https://h/a/x.gguf"),
        ("https://other/y.gguf", "https://h/a/m.json", "https://other/y.gguf"),
        ("https://h/o/r/blob/main/y.gguf", "/m.json", "https://h/o/r/resolve/main/y.gguf"),
        ("x.gguf", "/models/a/a.json", "/models/a/x.gguf"),
        ("../x.gguf", "/models/a/a.json", "/models/x.gguf"),
        ("/elsewhere/x.gguf", "/models/a/a.json", "/elsewhere/x.gguf"),
        ("file:///else%20where/x.gguf", "/models/a/a.json", "/else where/x.gguf"),
        ("file://localhost/x.gguf", "/models/a/a.json", "/x.gguf"),
    ],
)
def test_paths_of_a_manifests_files(value, base, expected):
    assert locate(value, base) == expected


def test_creating_one_finds_companions_and_the_catalogues_sampling(make_gguf, variables, tmp_path):
    model = make_gguf("LFM2-VL-450M-Q4_0.gguf")
    make_gguf("mmproj-LFM2-VL-450M-F16.gguf", "clip")
    made = create_manifest(model, tmp_path / "made" / "m.json", threads=2)
    assert made.kind == "vision" and made.files == {
        "model": "LFM2-VL-450M-Q4_0.gguf",
        "multimodal_projector": "mmproj-LFM2-VL-450M-F16.gguf",
    }
    assert made.sampling.temperature == 0.1 and made.threads == 2
    assert read_manifest(tmp_path / "made" / "m.json") == made
    (tmp_path / "made" / "leap").mkdir()
    below = create_manifest(model, tmp_path / "made" / "leap" / "m.json")
    assert below.model == "../LFM2-VL-450M-Q4_0.gguf"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("inference_type", {"load_time_parameters": {"model": "m.gguf"}, "inference_type": None}),
        ("load_time_parameters", {"load_time_parameters": None, "inference_type": "llama.cpp/text-to-text"}),
        (
            "load_time_parameters.model",
            {"load_time_parameters": {"model": None}, "inference_type": "llama.cpp/text-to-text"},
        ),
    ],
)
def test_null_counts_as_missing(path, value):
    text = json.dumps({"schema_version": "1.0.0", **value})
    assert [(problem.path, problem.message) for problem in problems_of(text, "m")] == [(path, "is missing")]
    with pytest.raises(LeapSerializationError, match="is missing"):
        parse_manifest(text)
