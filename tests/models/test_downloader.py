"""The SDK's downloader: the same names, the same states."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass

import pytest

from leap_core.errors import LeapError, LeapModelDownloadError, LeapModelNotFoundError, LeapOptionsError
from leap_core.models.download.downloading import DownloadOptions
from leap_core.models.download.sdk import (
    Downloaded,
    DownloadInProgress,
    HuggingFaceDownloadableModel,
    LeapDownloadableModel,
    LeapModelDownloader,
    NotOnLocal,
)
from leap_core.models.http import DownloadStopped
from leap_core.models.store import InstalledModel, Store

OWNER, REPO, FILE = "LiquidAI", "LFM2-350M-GGUF", "LFM2-350M-Q4_0.gguf"


@pytest.fixture
def model(hub, variables, content) -> HuggingFaceDownloadableModel:
    hub.add_file(f"{OWNER}/{REPO}", FILE, content)
    return HuggingFaceDownloadableModel(OWNER, REPO, FILE)


def wait_for(condition) -> None:
    end = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_the_sdks_example_works(hub, model, content, leap_home):
    downloader = LeapModelDownloader()
    assert downloader.query_status(model) == NotOnLocal()
    assert downloader.get_model_file(model) == leap_home / "models" / "LFM2-350M-Q4_0" / FILE
    assert downloader.get_model_file_size(model) is None
    path = downloader.download_model(model)
    assert path == downloader.get_model_file(model) and path.read_bytes() == content
    assert downloader.query_status(model) == Downloaded()
    assert downloader.get_model_file_size(model) == len(content)
    assert downloader.get_available_disk_space() > 0
    downloader.remove_model(model)
    assert downloader.query_status(model) == NotOnLocal() and not path.exists()


@pytest.mark.slow
def test_a_requested_download_runs_in_the_background_and_can_be_stopped(hub, model, content):
    hub.bytes_per_second = 1_000_000
    downloader = LeapModelDownloader()
    downloader.request_download_model(model)
    downloader.request_download_model(model)
    wait_for(lambda: isinstance(s := downloader.query_status(model), DownloadInProgress) and s.progress > 0.1)
    other = LeapModelDownloader()
    assert isinstance(other.query_status(model), DownloadInProgress), "others see it too"
    downloader.request_stop_download(model)
    wait_for(lambda: downloader.query_status(model) == NotOnLocal())
    hub.bytes_per_second = None
    downloader.request_download_model(model)
    wait_for(lambda: downloader.query_status(model) == Downloaded())
    assert hub.bytes_served("/storage/") < 1.4 * len(content)
    assert downloader.get_model_file(model).read_bytes() == content
    assert downloader.get_error(model) is None


def test_a_failed_download_has_a_reason(hub, model):
    hub.fault("status", "/api/", status=404, times=9)
    downloader = LeapModelDownloader(DownloadOptions(retries=0))
    with pytest.raises(LeapModelDownloadError, match="404"):
        downloader.download_model(model)
    downloader.request_download_model(model)
    wait_for(lambda: downloader.get_error(model) is not None)
    assert downloader.query_status(model) == NotOnLocal()


def test_force_replaces_only_when_the_new_file_is_complete(hub, model, content):
    downloader = LeapModelDownloader(DownloadOptions(retries=0))
    path = downloader.download_model(model)
    hub.fault("status", status=404, times=9)
    with pytest.raises(LeapModelDownloadError):
        downloader.download_model(model, force_download=True)
    assert path.read_bytes() == content
    hub.faults.clear()
    served = hub.bytes_served("/storage/")
    downloader.download_model(model, force_download=True)
    assert hub.bytes_served("/storage/") >= served + len(content)


@pytest.mark.slow
def test_async_and_cancelled(hub, model, content):
    hub.bytes_per_second = 1_000_000
    downloader = LeapModelDownloader()

    async def cancelled() -> None:
        task = asyncio.create_task(downloader.download_model_async(model))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    wait_for(lambda: downloader.query_status(model) == NotOnLocal())
    hub.bytes_per_second = None
    assert asyncio.run(downloader.download_model_async(model)).read_bytes() == content


@pytest.mark.slow
def test_stopping_a_blocking_download(hub, model):
    hub.bytes_per_second = 500_000
    downloader = LeapModelDownloader()
    timer = threading.Timer(0.4, downloader.request_stop_download, [model])
    timer.start()
    with pytest.raises(DownloadStopped):
        downloader.download_model(model)
    timer.join()


@pytest.mark.slow
def test_the_registry_is_asked_first(hub, variables, content, leap_home):
    url = hub.add_plain("Q4_0.json", json.dumps(manifest(hub.add_plain("Reg-Q4_0.gguf", content))).encode())
    hub.registry["LFM2-350M", "Q4_0"] = url
    model = LeapDownloadableModel.resolve("LFM2-350M", "Q4_0")
    assert model == LeapDownloadableModel("LFM2-350M", "Q4_0", url)
    assert hub.requests("/api/edge-sdk/model-manifest")[0].headers["x-client-version"]
    downloader = LeapModelDownloader()
    assert downloader.query_status(model) == NotOnLocal()
    path = downloader.download_model(model)
    assert path.read_bytes() == content and downloader.query_status(model) == Downloaded()


@pytest.mark.slow
def test_where_the_registry_has_nothing_the_hub_is_asked(hub, model, content):
    found = LeapDownloadableModel.resolve("LFM2-350M", "Q4_0")
    assert found is not None and found.uri == f"{hub.url}/{OWNER}/{REPO}/resolve/main/{FILE}"
    assert LeapModelDownloader().download_model(found).read_bytes() == content
    assert LeapDownloadableModel.resolve("LFM2-350M", "Q2_K") is None
    assert LeapDownloadableModel.resolve("no-such-model", "Q4_0") is None
    assert asyncio.run(LeapDownloadableModel.resolve_async("LFM2-350M", "lfm2-350m-q4_0")) is not None


def manifest(model: str) -> dict:
    return {
        "inference_type": "llama.cpp/text-to-text",
        "schema_version": "1.0.0",
        "load_time_parameters": {"model": model},
    }


@dataclass(frozen=True)
class OwnModel:
    """A DownloadableModel of a program's own."""

    uri: str
    local_filename: str
    name: str = "mine"


def test_nothing_outside_the_store_is_removed(hub, variables, content, tmp_path, leap_home):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "diary.txt").write_text("dear")
    (notes / "other.gguf").write_bytes(content)
    url = hub.add_plain("New-Q4_0.gguf", content)
    for name in (str(notes / "mine.gguf"), "../../notes/mine.gguf", "..", ""):
        with pytest.raises(LeapError):
            LeapModelDownloader().remove_model(OwnModel(url, name))
        with pytest.raises(LeapError):
            LeapModelDownloader().download_model(OwnModel(url, name))
    store = Store(leap_home / "models")
    with pytest.raises(LeapModelNotFoundError, match="only models there"):
        store.remove(InstalledModel(notes, None))
    assert sorted(path.name for path in notes.iterdir()) == ["diary.txt", "other.gguf"]


def test_the_local_filename_is_the_files_name(hub, variables, content, leap_home):
    model = OwnModel(hub.add_plain("New-Q4_0.gguf", content), "mine.gguf")
    downloader = LeapModelDownloader()
    expected = downloader.get_model_file(model)
    assert expected == leap_home / "models" / "New-Q4_0" / "mine.gguf"
    assert downloader.download_model(model) == expected == downloader.get_model_file(model)
    assert expected.read_bytes() == content
    downloader.remove_model(model)
    assert downloader.query_status(model) == NotOnLocal()


def test_the_file_of_a_manifest_is_known_in_advance(hub, variables, content, leap_home):
    hub.add_file(f"{OWNER}/{REPO}", FILE, content)
    hub.add_file(f"{OWNER}/{REPO}", "leap/Q4_0.json", json.dumps(manifest(f"../{FILE}")).encode())
    model = HuggingFaceDownloadableModel(OWNER, REPO, "leap/Q4_0.json")
    downloader = LeapModelDownloader()
    expected = downloader.get_model_file(model)
    assert expected == leap_home / "models" / "LFM2-350M-Q4_0" / FILE
    assert downloader.download_model(model) == expected


@pytest.mark.slow
def test_a_stop_ends_every_download_of_the_model(hub, model):
    hub.bytes_per_second = 300_000
    downloader = LeapModelDownloader()
    downloader.request_download_model(model)
    wait_for(lambda: isinstance(s := downloader.query_status(model), DownloadInProgress) and s.progress > 0.02)
    background = next(each for each in threading.enumerate() if each.name == "leap-downloader")
    timer = threading.Timer(0.4, downloader.request_stop_download, [model])
    timer.start()
    with pytest.raises(DownloadStopped):
        downloader.download_model(model)
    background.join(100)
    assert not background.is_alive()


def test_a_bare_name_is_not_downloadable(variables):
    for wrong in ("name", 5, None):
        with pytest.raises(LeapOptionsError, match="DownloadableModel"):
            LeapModelDownloader().download_model(wrong)
        with pytest.raises(LeapOptionsError, match="DownloadableModel"):
            LeapModelDownloader().request_download_model(wrong)


def test_a_file_other_than_a_model_is_not_downloaded(variables, tmp_path):
    (tmp_path / "passwd").write_text("root:x:0:0")
    with pytest.raises(LeapError):
        LeapModelDownloader().download_model(OwnModel((tmp_path / "passwd").as_uri(), "passwd.gguf"))
