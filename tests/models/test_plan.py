"""What is fetched for a reference, from where, and what a hub or a manifest cannot make us write."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace

import pytest

from leap_core.errors import LeapModelDownloadError, LeapModelNotFoundError
from leap_core.models.catalogue import Catalogue
from leap_core.models.download.downloading import Download
from leap_core.models.download.plan import DownloadPlan, DownloadPlanner
from leap_core.models.http import Web
from leap_core.models.hub import Hub
from leap_core.models.hub_settings import HubSettings
from leap_core.models.reference import CatalogueName
from leap_core.models.resolving import resolve_local
from leap_core.models.store import Store
from leap_core.system.http import CERTIFICATE_FILES
from tests.support.hub import API, FILES, RESOLVE, FakeHub

VL, AUDIO = "LiquidAI/LFM2.5-VL-1.6B-GGUF", "LiquidAI/LFM2.5-Audio-1.5B-GGUF"


def plan_download(reference: str) -> DownloadPlan | None:
    return Download().plan(reference, None, None)


def add_vision(hub) -> None:
    for name in ("LFM2.5-VL-1.6B-Q4_0.gguf", "LFM2.5-VL-1.6B-F16.gguf"):
        hub.add_file(VL, name, name.encode() * 500)
    for name in ("mmproj-LFM2.5-VL-1.6b-Q8_0.gguf", "mmproj-LFM2.5-VL-1.6b-F16.gguf"):
        hub.add_file(VL, name, name.encode() * 300)
    hub.add_file(VL, "README.md", b"# read me")


def add_audio(hub) -> None:
    for start in ("", "mmproj-", "vocoder-", "tokenizer-"):
        for quantization in ("Q4_0", "Q8_0"):
            name = f"{start}LFM2.5-Audio-1.5B-{quantization}.gguf"
            hub.add_file(AUDIO, name, name.encode() * 200)


def test_a_model_that_sees_comes_with_its_projector(hub, download, leap_home):
    add_vision(hub)
    found = download("lfm2.5-vl-1.6b")
    directory = leap_home / "models" / "LFM2.5-VL-1.6B-Q4_0"
    assert found.path == directory / "LFM2.5-VL-1.6B-Q4_0.gguf"
    assert found.mm_proj_path == directory / "mmproj-LFM2.5-VL-1.6b-Q8_0.gguf"
    assert found.kind == "vision" and found.sampling.min_p == 0.15
    assert found.mm_proj_path.read_bytes() == b"mmproj-LFM2.5-VL-1.6b-Q8_0.gguf" * 300


def test_a_model_that_hears_comes_with_all_its_companions(hub, download, leap_home):
    add_audio(hub)
    found = download("LFM2.5-Audio-1.5B", "Q8_0")
    assert found.kind == "audio"
    names = [path.name for path in (found.mm_proj_path, found.audio_decoder_path, found.audio_tokenizer_path)]
    assert names == [f"{start}-LFM2.5-Audio-1.5B-Q8_0.gguf" for start in ("mmproj", "vocoder", "tokenizer")]


def test_the_repositorys_own_manifest_decides(hub, download):
    add_vision(hub)
    manifest = {
        "inference_type": "llama.cpp/image-to-text",
        "schema_version": "1.0.0",
        "load_time_parameters": {
            "model": "../LFM2.5-VL-1.6B-Q4_0.gguf",
            "multimodal_projector": "../mmproj-LFM2.5-VL-1.6b-F16.gguf",
        },
        "generation_time_parameters": {"sampling_parameters": {"temperature": 0.7}},
    }
    hub.add_file(VL, "leap/Q4_0.json", json.dumps(manifest).encode())
    found = download("LFM2.5-VL-1.6B:Q4_0")
    assert found.mm_proj_path is not None and found.mm_proj_path.name == "mmproj-LFM2.5-VL-1.6b-F16.gguf"
    assert found.sampling.temperature == 0.7 and found.sampling.min_p == 0.15
    written = json.loads(found.manifest_path.read_text())
    assert written["load_time_parameters"]["multimodal_projector"] == "mmproj-LFM2.5-VL-1.6b-F16.gguf"
    assert written["original_url"].endswith("/leap/Q4_0.json") and written["path_on_disk"] == str(found.path)


def test_a_broken_manifest_of_the_repository_is_reported_and_not_used(hub, download):
    add_vision(hub)
    hub.add_file(VL, "leap/Q4_0.json", b'{"inferenceType": 1}')
    assert download("LFM2.5-VL-1.6B").mm_proj_path is not None
    assert "is not used" in download.notices and "did you mean 'inference_type'" in download.notices


def test_manifest_urls(hub, download, content, leap_home):
    url = hub.add_plain("leap/Q4_0.json", json.dumps(text_manifest("../Tiny-Q4_0.gguf")).encode())
    hub.add_plain("Tiny-Q4_0.gguf", content)
    found = download(url)
    assert found.path == leap_home / "models" / "Tiny-Q4_0" / "Tiny-Q4_0.gguf"
    assert found.path.read_bytes() == content and found.sampling.temperature == 0.5
    served = hub.bytes_served("Tiny-Q4_0.gguf")
    download(url)
    assert hub.bytes_served("Tiny-Q4_0.gguf") - served <= 1


def test_a_local_manifest_of_urls(hub, download, content, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(text_manifest(hub.add_plain("Tiny-Q4_0.gguf", content))))
    assert download(str(path)).path.read_bytes() == content


def test_a_split_model_has_all_its_parts(hub, download):
    for part in (1, 2):
        hub.add_file("me/Big-GGUF", f"Big-Q4_0-0000{part}-of-00002.gguf", bytes([part]) * 5000)
    found = download("me/Big-GGUF")
    names = sorted(path.name for path in found.path.parent.glob("*.gguf"))
    assert names == ["Big-Q4_0-00001-of-00002.gguf", "Big-Q4_0-00002-of-00002.gguf"]
    assert found.path.name == names[0] and found.path.parent.name == "me--Big-Q4_0"


def test_a_revision_can_be_named(hub, download, content):
    hub.add_file("me/Mine-GGUF", "Mine-Q4_0.gguf", content)
    old = hub.files_of("me/Mine-GGUF", "main")[0]
    hub.add_file("me/Mine-GGUF", "Mine-Q4_0.gguf", content[::-1])
    found = download("me/Mine-GGUF", revision=old)
    assert found.path.read_bytes() == content and old[:12] in found.path.parent.name
    assert download("me/Mine-GGUF").path.read_bytes() == content[::-1]
    with pytest.raises(LeapModelDownloadError, match="404"):
        download("me/Mine-GGUF", revision="nowhere")


def test_an_unknown_quantization_lists_the_known_ones(hub, variables):
    add_vision(hub)
    with pytest.raises(LeapModelNotFoundError, match="no quantization Q2_K") as caught:
        plan_download("LFM2.5-VL-1.6B:Q2_K")
    assert caught.value.hint == "it has F16, Q4_0"
    with pytest.raises(LeapModelDownloadError, match="has no file nope.gguf") as error:
        plan_download(f"hf:{VL}/nope.gguf")
    assert "LFM2.5-VL-1.6B-F16.gguf" in error.value.hint


def test_a_plan_writes_nothing(hub, variables, leap_home):
    add_audio(hub)
    plan = plan_download("LFM2.5-Audio-1.5B")
    assert [file.role for file in plan.files] == ["model", "multimodal_projector", "audio_decoder", "audio_tokenizer"]
    assert plan.total_bytes == sum(file.remote.size for file in plan.files)
    assert not leap_home.exists() and hub.bytes_served(FILES) == 0


def test_the_tree_is_asked_when_the_revision_does_not_list_sizes(hub, variables, monkeypatch):
    add_vision(hub)
    monkeypatch.setattr("leap_core.models.hub._of_sibling", lambda _entry: None)
    plan = plan_download("LFM2.5-VL-1.6B")
    assert plan.files[0].remote.sha256 is not None and hub.requests("/tree/")


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    ["https://h/..%2f..%2fevil.gguf", "https://h/.evil.gguf", "https://h/..", "https://h/C%3A%5Cevil.gguf", "file:///x"]
    + ["/etc/passwd", "https://h/nul.gguf"],
)
def test_a_manifest_cannot_name_files_outside(hub, variables, leap_home, value):
    url = hub.add_plain("m.json", json.dumps(text_manifest(value)).encode())
    with pytest.raises(LeapModelDownloadError):
        plan_download(url)
    assert not leap_home.exists()


@pytest.mark.parametrize(
    "path", ["../../evil-Q4_0.gguf", "/etc/evil-Q4_0.gguf", "a/../../evil-Q4_0.gguf", ".evil-Q4_0.gguf"]
)
def test_an_answer_of_the_hub_cannot_name_files_outside(hub, variables, leap_home, path):
    hub.add_file("me/Evil-GGUF", path, b"x" * 2000)
    with pytest.raises(LeapModelDownloadError):
        plan_download("me/Evil-GGUF")
    assert not leap_home.exists()


def test_two_files_of_one_name_are_refused(hub, variables):
    manifest = text_manifest("https://h/a/x.gguf") | {"inference_type": "llama.cpp/image-to-text"}
    manifest["load_time_parameters"]["multimodal_projector"] = hub.add_plain("b/X.gguf", b"y" * 2000)
    manifest["load_time_parameters"]["model"] = hub.add_plain("a/x.gguf", b"x" * 2000)
    url = hub.add_plain("m.json", json.dumps(manifest).encode())
    with pytest.raises(LeapModelDownloadError, match="two files that would both be called"):
        plan_download(url)


@pytest.mark.parametrize("answer", [b"[]", b"{}", b'{"sha": 5}', b'{"sha": "../x", "siblings": []}', b"not json"])
def test_invalid_answers_of_the_hub_are_errors(variables, answer):
    class Nonsense(Web):
        def document(self, url, what, headers=None):
            return answer, {}

    with Nonsense(HubSettings.from_environment(variables)) as web:
        hub = Hub(web, lambda action: action())
        with pytest.raises(LeapModelDownloadError):
            DownloadPlanner(hub, Store(None), Catalogue([])).plan(
                CatalogueName(Catalogue.load().find("LFM2-700M"), None)
            )


def test_the_token_goes_to_the_hub_and_to_nobody_else(hub, download, content, monkeypatch):
    hub.gated.add("LiquidAI/LFM2-350M-GGUF")
    hub.add_file("LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_K_M.gguf", content)
    hub.fault("drop", after=500_000, times=2)
    with pytest.raises(LeapModelDownloadError, match="401") as caught:
        download("LFM2-350M")
    assert "is gated: accept its terms at" in caught.value.hint and "set HF_TOKEN" in caught.value.hint
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert download("LFM2-350M").path.read_bytes() == content
    assert all(request.headers.get("authorization") for request in hub.requests(RESOLVE))
    stored = [request for request in hub.log if request.host == "storage"]
    assert len(stored) == 3 and not any("authorization" in request.headers for request in stored)
    everything = json.dumps([vars(request) for request in stored])
    assert hub.token not in everything


def test_the_token_does_not_go_to_other_peoples_urls(hub, download, content, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", hub.token)
    download(hub.add_plain("Tiny-Q4_0.gguf", content))
    assert hub.log and not any("authorization" in request.headers for request in hub.log)


def test_a_wrong_token_is_told_apart(hub, download, content, monkeypatch):
    hub.add_file("LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_K_M.gguf", content)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(LeapModelDownloadError, match="401") as caught:
        download("LFM2-350M")
    assert "does not accept your token" in caught.value.hint and "hf_wrong" not in caught.value.hint
    monkeypatch.setenv("HF_TOKEN", "spaces are wrong")
    with pytest.raises(LeapModelDownloadError, match="characters that no token has"):
        download("LFM2-350M")


def test_the_token_file_is_read(hub, download, content, monkeypatch, tmp_path):
    hub.gated.add("LiquidAI/LFM2-350M-GGUF")
    hub.add_file("LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_K_M.gguf", content)
    (tmp_path / "huggingface").mkdir()
    (tmp_path / "huggingface" / "token").write_text(hub.token + "\n")
    assert download("LFM2-350M").path.read_bytes() == content


def test_offline_nobody_is_asked(hub, download, content, monkeypatch):
    hub.add_file("LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_K_M.gguf", content)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(LeapModelDownloadError, match="HF_HUB_OFFLINE is set"):
        download("LFM2-350M")
    assert hub.requests(API) == []
    monkeypatch.delenv("HF_HUB_OFFLINE")
    path = download("LFM2-350M").path
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = len(hub.log)
    assert download("LFM2-350M").path == path and len(hub.log) == asked


def test_a_configured_proxy_is_used(hub, download, content, monkeypatch):
    hub.add_file("LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_K_M.gguf", content)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    download.options = replace(download.options, retries=0)
    with pytest.raises(LeapModelDownloadError, match="cannot connect"):
        download("LFM2-350M")
    assert hub.log == []


def test_a_file_in_another_programs_cache_is_linked_not_fetched(hub, download, content, tmp_path):
    name = "LFM2-350M-Q4_K_M.gguf"
    hub.add_file("LiquidAI/LFM2-350M-GGUF", name, content)
    snapshot = tmp_path / "huggingface" / "hub" / "models--LiquidAI--LFM2-350M-GGUF" / "snapshots" / "x"
    snapshot.mkdir(parents=True)
    (snapshot / name).write_bytes(content[::-1])
    assert download("LFM2-350M").path.read_bytes() == content, "a cached file with the wrong bytes is not believed"
    served = hub.bytes_served()
    assert served == len(content)
    (snapshot / name).write_bytes(content)
    found = download("LFM2-350M")
    found.path.unlink()
    again = download("LFM2-350M")
    assert hub.bytes_served() == served and again.path.samefile(snapshot / name)


def text_manifest(model: str) -> dict:
    return {
        "inference_type": "llama.cpp/text-to-text",
        "schema_version": "1.0.0",
        "load_time_parameters": {"model": model},
        "generation_time_parameters": {"sampling_parameters": {"temperature": 0.5}},
    }


@pytest.mark.slow
def test_an_installed_model_is_renewed_by_its_own_name(hub, download, content):
    hub.add_file("me/Mine-GGUF", "Mine-Q4_0.gguf", content)
    found = download("me/Mine-GGUF")
    hub.add_file("me/Mine-GGUF", "Mine-Q4_0.gguf", content[::-1])
    assert download(found.path.parent.name).path.read_bytes() == content[::-1]
    old = hub.files_of("me/Mine-GGUF", "main")[0]
    pinned = download("me/Mine-GGUF", revision=old).path.parent.name
    hub.add_file("me/Mine-GGUF", "Mine-Q4_0.gguf", content)
    assert download(pinned).path.read_bytes() == content[::-1], "a pinned one stays what it is"
    url = hub.add_plain("Url-Q4_0.gguf", content)
    assert download(url).path == download("Url-Q4_0").path


@pytest.mark.slow
def test_an_unfinished_model_is_completed_by_its_own_name(hub, download, content):
    hub.add_file("LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_K_M.gguf", content)
    hub.fault("truncate", after=1_000_000, times=99)
    download.options = replace(download.options, retries=0)
    with pytest.raises(LeapModelDownloadError):
        download("LFM2-350M")
    hub.faults.clear()
    with pytest.raises(LeapModelNotFoundError, match="not complete") as caught:
        resolve_local("LFM2-350M-Q4_K_M")
    assert caught.value.hint == "leap download LFM2-350M-Q4_K_M completes it"
    assert download("LFM2-350M-Q4_K_M").path.read_bytes() == content


@pytest.fixture
def certificate(tmp_path):
    """A certificate for 127.0.0.1 that nobody has signed but itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run([*command.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    return key, cert


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_custom_certificates_are_trusted_when_named(download, certificate, monkeypatch, variable):
    key, cert = certificate
    with FakeHub(certificate=cert, key=key) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for name in CERTIFICATE_FILES:
            monkeypatch.delenv(name, raising=False)
        hub.add_file("me/Mine-GGUF", "Mine-Q4_0.gguf", b"secure" * 1000)
        with pytest.raises(LeapModelDownloadError, match="is not trusted") as caught:
            download("me/Mine-GGUF")
        assert "SSL_CERT_FILE" in caught.value.hint
        monkeypatch.setenv(variable, str(cert))
        assert download("me/Mine-GGUF").path.read_bytes() == b"secure" * 1000
        monkeypatch.setenv(variable, "/nowhere.pem")
        with pytest.raises(LeapModelDownloadError, match=f"cannot read the certificates of {variable}=/nowhere.pem"):
            download("me/Mine-GGUF", revision="main")


def test_a_repository_without_gguf_files(hub, variables):
    hub.add_file("me/Mine", "model.safetensors", b"x" * 2000)
    with pytest.raises(LeapModelNotFoundError, match="me/Mine has no GGUF model") as caught:
        plan_download("me/Mine")
    assert "me/Mine-GGUF" in caught.value.hint


@pytest.mark.slow
def test_a_set_is_never_half_old_and_half_new(hub, download):
    """The second file of an update fails: the first one has arrived, and the installed set is still whole."""
    add_vision(hub)
    found = download("LFM2.5-VL-1.6B")
    before = found.path.read_bytes(), found.mm_proj_path.read_bytes()
    hub.add_file(VL, "LFM2.5-VL-1.6B-Q4_0.gguf", b"new" * 2000)
    hub.add_file(VL, "mmproj-LFM2.5-VL-1.6b-Q8_0.gguf", b"newer" * 2000)
    hub.fault("status", "mmproj-LFM2.5-VL-1.6b-Q8_0.gguf", status=403, times=9)
    with pytest.raises(LeapModelDownloadError, match="403"):
        download("LFM2.5-VL-1.6B")
    assert (found.path.read_bytes(), found.mm_proj_path.read_bytes()) == before
    assert resolve_local("LFM2.5-VL-1.6B") == found
    hub.faults.clear()
    served = hub.bytes_served(FILES)
    download("LFM2.5-VL-1.6B")
    assert (found.path.read_bytes(), found.mm_proj_path.read_bytes()) == (b"new" * 2000, b"newer" * 2000)
    assert hub.bytes_served(FILES) - served == len(b"newer" * 2000), "what had arrived is not fetched again"


def test_an_incomplete_first_set_is_not_loaded(hub, download):
    add_vision(hub)
    hub.fault("status", "mmproj-LFM2.5-VL-1.6b-Q8_0.gguf", status=403, times=9)
    with pytest.raises(LeapModelDownloadError):
        download("LFM2.5-VL-1.6B")
    with pytest.raises(LeapModelNotFoundError):
        resolve_local("LFM2.5-VL-1.6B")
    with pytest.raises(LeapModelNotFoundError, match="not complete"):
        resolve_local("LFM2.5-VL-1.6B-Q4_0")
