"""From a reference to files on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leap_core.conversation.options import SamplingDefaults
from leap_core.errors import LeapModelLoadingError, LeapModelNotFoundError, LeapSerializationError
from leap_core.models.catalogue import Catalogue, parse_catalogue
from leap_core.models.manifest import Manifest, write_manifest
from leap_core.models.reference import (
    Builtin,
    CatalogueName,
    HubFile,
    InstalledName,
    LocalPath,
    Repository,
    Url,
    parse_reference,
)
from leap_core.models.resolving import resolve_local

CATALOGUE = Catalogue.load()
HUB = "https://huggingface.co"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("builtin", Builtin()),
        ("BUILTIN", Builtin()),
        ("builtin-vl", Builtin("builtin-vl")),
        ("Builtin-Audio", Builtin("builtin-audio")),
        ("builtin-embed", Builtin("builtin-embed")),
        ("a/b", Repository("a/b", None)),
        ("a/b:q4_0", Repository("a/b", "q4_0")),
        ("hf:a/b", Repository("a/b", None)),
        ("hf:a/b:Q8_0", Repository("a/b", "Q8_0")),
        ("hf:a/b/c.gguf", HubFile("a/b", "c.gguf")),
        ("hf:a/b@v1/leap/Q4_0.json", HubFile("a/b", "leap/Q4_0.json", "v1")),
        (f"{HUB}/a/b/resolve/main/c.gguf", HubFile("a/b", "c.gguf")),
        (f"{HUB}/a/b/blob/abc123/d/c.gguf?download=true", HubFile("a/b", "d/c.gguf", "abc123")),
        ("https://example.org/c.gguf", Url("https://example.org/c.gguf")),
        ("./c.gguf", LocalPath(Path("/here/c.gguf"))),
        ("c.gguf", LocalPath(Path("/here/c.gguf"))),
        ("/m/c.json", LocalPath(Path("/m/c.json"))),
        ("../m", LocalPath(Path("/m"))),
        ("file:///m/c.gguf", LocalPath(Path("/m/c.gguf"))),
        ("Mine-Q4_0", InstalledName("mine-q4_0")),
    ],
)
def test_references_are_parsed(text, expected):
    found = parse_reference(text, CATALOGUE, installed=["mine-q4_0"], cwd=Path("/here"), endpoint=HUB)
    assert found == expected


@pytest.mark.parametrize(
    "text",
    ["LFM2.5-1.2B-Instruct", "lfm2.5-1.2b-instruct", "LFM2.5-1.2B-I", "LiquidAI/LFM2.5-1.2B-Instruct"]
    + ["LFM2.5-1.2B-Instruct-GGUF", "LiquidAI/LFM2.5-1.2B-Instruct-GGUF"],
)
def test_names_of_the_catalogue(text):
    found = parse_reference(text, CATALOGUE)
    assert isinstance(found, CatalogueName) and found.entry.name == "LFM2.5-1.2B-Instruct"
    quantized = parse_reference(f"{text}:q8_0", CATALOGUE)
    assert isinstance(quantized, CatalogueName) and quantized.quantization == "q8_0"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "empty", None),
        ("LFM2.5-1.2B-Instuct", "no model 'LFM2.5-1.2B-Instuct'", "did you mean LFM2.5-1.2B-Instruct"),
        ("LFM2.5-1.2B", "could be LFM2.5-1.2B-Instruct", "whole name"),
        ("nothing like it", "no model", "leap models catalogue"),
        ("a/b/c/d", "no file or directory", "OWNER/REPO"),
        ("a" * 300, "no model", "leap models catalogue"),
        ("hf:a", "is not hf:owner/repo", None),
        ("hf:a/b/readme.md", "neither a .gguf", None),
        ("ftp://h/x.gguf", "neither a http", None),
        ("https://h/x", "ends neither in .gguf", None),
        ("file://otherhost/x.gguf", "another machine", None),
        ("LFM2-350M:Q4 0", "not a quantization", "Q4_K_M"),
    ],
)
def test_unknown_names_get_suggestions(text, message, hint):
    with pytest.raises(LeapModelNotFoundError) as caught:
        parse_reference(text, CATALOGUE)
    assert message in caught.value.message
    assert (caught.value.hint is None) if hint is None else (hint in (caught.value.hint or ""))


@pytest.mark.parametrize(
    "text", ["LFM2-1.2B-8da4w_output_8da8w-seq_4096.bundle", "hf:LiquidAI/LeapBundles/LFM2-1.2B-x.bundle"]
)
def test_bundles_are_refused_with_the_gguf_to_use(text):
    with pytest.raises(LeapModelLoadingError, match="ExecuTorch bundle") as caught:
        parse_reference(text, CATALOGUE)
    assert caught.value.hint == "use the GGUF instead: leap download LFM2-1.2B"


def test_a_quantization_cannot_be_named_twice():
    with pytest.raises(LeapModelNotFoundError, match="names one quantization"):
        parse_reference("LFM2-350M:Q4_0", CATALOGUE, quantization="Q8_0")
    assert parse_reference("LFM2-350M:q8_0", CATALOGUE, quantization="Q8_0")


def test_a_gguf_brings_the_companions_beside_it(make_gguf, variables):
    model = make_gguf("LFM2.5-VL-1.6B-Q4_0.gguf")
    projector = make_gguf("mmproj-LFM2.5-VL-1.6b-Q8_0.gguf", "clip")
    found = resolve_local(str(model))
    assert (found.path, found.mm_proj_path, found.kind) == (model, projector, "vision")
    assert found.model_id == "LFM2.5-VL-1.6B-Q4_0"
    assert found.sampling == SamplingDefaults(temperature=0.1, min_p=0.15, repetition_penalty=1.05)
    assert resolve_local(model.as_uri()) == found
    assert resolve_local(str(model.parent)) == found


def test_a_manifest_overrides_the_catalogue(make_gguf, variables, tmp_path):
    make_gguf("LFM2-350M-Q4_0.gguf")
    sampling = SamplingDefaults(temperature=0.9)
    manifest = Manifest("LFM2-350M-Q4_0.gguf", sampling=sampling, chat_template="{{ x }}", threads=3)
    write_manifest(manifest, tmp_path / "made" / "mine.json")
    found = resolve_local(str(tmp_path / "made" / "mine.json"))
    assert found.sampling == SamplingDefaults(temperature=0.9, min_p=0.15, repetition_penalty=1.05)
    assert (found.chat_template, found.threads, found.model_id, found.parser_name) == ("{{ x }}", 3, "mine", "lfm")


def test_a_damaged_manifest_is_a_loading_error(make_gguf, variables, tmp_path):
    make_gguf("a.gguf")
    path = tmp_path / "made" / "a.json"
    path.write_text('{"inferenceType": "x"}')
    with pytest.raises(LeapModelLoadingError, match="did you mean 'inference_type'") as caught:
        resolve_local(str(path))
    assert "manifest check" in (caught.value.hint or "")
    path.write_text(json.dumps(Manifest("gone.gguf").to_json()))
    with pytest.raises(LeapModelNotFoundError, match="names 'gone.gguf'"):
        resolve_local(str(path))


@pytest.mark.parametrize("text", ['{"name": "made", "version": "1.0"}', "[1, 2]", '{"open', ""])
def test_other_json_files_beside_a_model_are_ignored(make_gguf, variables, tmp_path, text):
    path = make_gguf("a.gguf")
    for name in ("a.json", "made.json"):
        (tmp_path / "made" / name).write_text(text)
    assert resolve_local(str(path)).path == resolve_local(str(path.parent)).path == path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_the_manifest_beside_a_model_counts_however_it_is_encoded(make_gguf, variables, tmp_path, encoding):
    path = make_gguf("a.gguf")
    manifest = Manifest("a.gguf", chat_template="{{ 1 }}").dumps()
    (tmp_path / "made" / "a.json").write_text(manifest, encoding=encoding)
    assert resolve_local(str(path)).chat_template == "{{ 1 }}"


def test_a_broken_manifest_beside_a_model_is_named(make_gguf, variables, tmp_path):
    path = make_gguf("a.gguf")
    (tmp_path / "made" / "a.json").write_text('{"inference_type": "llama.cpp/text-to-text",')
    with pytest.raises(LeapModelLoadingError, match="a.json: not JSON"):
        resolve_local(str(path))


def test_errors_about_missing_models_give_advice(variables, make_gguf, tmp_path):
    with pytest.raises(LeapModelNotFoundError) as caught:
        resolve_local("LFM2.5-1.2B-Instruct:Q8_0")
    assert caught.value.hint == "leap download LFM2.5-1.2B-Instruct:Q8_0"
    make_gguf("LFM2-350M-Q4_0.gguf")
    with pytest.raises(LeapModelNotFoundError) as caught:
        resolve_local(str(tmp_path / "made" / "LFM2-350M-Q4_1.gguf"))
    assert caught.value.hint == "there is LFM2-350M-Q4_0.gguf"
    with pytest.raises(LeapModelLoadingError, match="holds no GGUF"):
        resolve_local(str(tmp_path / "made" / ".."))
    make_gguf("Other-Q4_0.gguf")
    with pytest.raises(LeapModelNotFoundError, match="several models"):
        resolve_local(str(tmp_path / "made"))


def test_files_of_other_programs_are_found_and_used(variables, tmp_path, content, monkeypatch):
    repo = tmp_path / "huggingface" / "hub" / "models--LiquidAI--LFM2-350M-GGUF"
    snapshot = repo / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    (snapshot / "LFM2-350M-Q4_0.gguf").write_bytes(content)
    assert resolve_local("LFM2-350M").path == snapshot / "LFM2-350M-Q4_0.gguf"
    assert resolve_local("LFM2-350M:q4_0").sampling.temperature == 0.3
    assert resolve_local("hf:LiquidAI/LFM2-350M-GGUF/LFM2-350M-Q4_0.gguf").path.is_file()
    with pytest.raises(LeapModelNotFoundError):
        resolve_local("LFM2-350M:Q8_0")
    flat = tmp_path / "llama" / "LiquidAI_LFM2-700M-GGUF_LFM2-700M-Q8_0.gguf"
    flat.parent.mkdir()
    flat.write_bytes(content)
    monkeypatch.setenv("LLAMA_CACHE", str(flat.parent))
    assert resolve_local("LiquidAI/LFM2-700M").path == flat


def test_the_users_own_catalogue(variables, leap_home):
    leap_home.mkdir()
    own = leap_home / "catalogue.json"
    own.write_text('{"models": [{"name": "Mine", "repo": "me/Mine-GGUF", "quantizations": ["q4_0"]}]}')
    with pytest.raises(LeapModelNotFoundError) as caught:
        resolve_local("mine:q4_0")
    assert caught.value.hint == "leap download mine:q4_0"
    assert Catalogue.load(leap_home).exact("mine").quantizations == ("Q4_0",)
    own.write_text('{"models": [{"nmae": "Mine"}]}')
    with pytest.raises(LeapModelLoadingError, match=r"models\[0\].nmae: there is no such key; did you mean 'name'"):
        resolve_local("mine")


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"models": [1]}', b'{"models": [{"name": "x"}]}', b'{"models": [{"name": "x", "repo": "y"}]}']
    + [b'{"models": [{"name": "x", "repo": "a/b", "sampling": {"temp": 1}}]}']
    + [b'{"models": [{"name": "x", "repo": "a/b", "kind": "smell"}]}']
    + [b'{"models": [{"name": "x", "repo": "a/b", "context": "large"}]}']
    + [b'{"models": [{"name": "x", "repo": "a/b", "parser": "pythonic"}]}'],
)
def test_a_malformed_catalogue_names_the_place(text):
    with pytest.raises(LeapSerializationError, match="^own.json"):
        parse_catalogue(text, "own.json")


def test_the_shipped_catalogue_is_valid():
    entries = list(CATALOGUE)
    assert len(entries) > 30
    assert {entry.kind for entry in entries} == {"text", "vision", "audio", "embedding"}
    assert all(entry.default in entry.quantizations for entry in entries if entry.runs)
    assert {"LFM2.5-Audio-1.5B", "LFM2.5-Audio-1.5B-JP"} <= {entry.name for entry in entries}
    assert {"Q4_0", "Q4_K_M"} <= set(CATALOGUE.exact("LFM2-350M").quantizations)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("https://huggingface.co/owner/repo", Repository("owner/repo", None)),
        ("https://huggingface.co/owner/repo/", Repository("owner/repo", None)),
        ("http://www.huggingface.co/owner/repo?library=x#files", Repository("owner/repo", None)),
        ("huggingface.co/owner/repo/tree/main", Repository("owner/repo", None)),
        ("https://huggingface.co/owner/repo/tree/v2", Repository("owner/repo", None, "v2")),
        ("hf.co/owner/repo:Q4_K_M", Repository("owner/repo", "Q4_K_M")),
        ("HF.co/owner/repo.v2-GGUF:Q8_0", Repository("owner/repo.v2-GGUF", "Q8_0")),
        ("https://hf.co/owner/repo/blob/main/folder/m.gguf", HubFile("owner/repo", "folder/m.gguf")),
        ("huggingface.co/owner/repo/resolve/v2/m.gguf?download=true", HubFile("owner/repo", "m.gguf", "v2")),
    ],
)
def test_the_address_of_a_page_of_the_hub_names_its_repository_or_file(text, meant):
    assert parse_reference(text, Catalogue.load()) == meant


@pytest.mark.parametrize(
    "text", ["https://huggingface.co/owner", "hf.co/models", "https://huggingface.co/owner/repo/discussions"]
)
def test_the_address_of_another_page_of_the_hub_names_no_model(text):
    with pytest.raises(LeapModelNotFoundError):
        parse_reference(text, Catalogue.load())


@pytest.mark.parametrize("text", ["Smol-135M-Instruct.Q4_1", "smol-135m_instruct-q4_1", "Smol-135M-Instruct-Q4_1"])
def test_the_stem_of_an_installed_file_names_the_model(text):
    installed = ["Smol-135M-Instruct-Q4_1", "Other-Q8_0"]
    assert parse_reference(text, Catalogue.load(), installed=installed) == InstalledName(installed[0])
