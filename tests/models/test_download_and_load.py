"""From a name or a URL to a runner in one call."""

from __future__ import annotations

import asyncio

import pytest

from leap_core import (
    ChatMessage,
    DownloadInProgress,
    DownloadOptions,
    GenerationOptions,
    HuggingFaceDownloadableModel,
    Leap,
    LeapModelDownloader,
    Manifest,
    ModelLoadingOptions,
    SamplingDefaults,
)
from leap_core.models.builtin import model_path
from leap_core.models.download.downloading import FileFinished

OWNER, REPO, FILE = "LiquidAI", "LFM2-350M-GGUF", "LFM2-350M-Q4_0.gguf"
OPTIONS = ModelLoadingOptions(slots=1, context_size=512)


@pytest.fixture
def served(hub, variables):
    hub.add_file(f"{OWNER}/{REPO}", FILE, model_path().read_bytes())
    return hub


@pytest.mark.slow
def test_a_model_is_downloaded_once_and_loaded(served):
    events = []
    for _ in range(2):
        with Leap.download_and_load("LFM2-350M", "Q4_0", OPTIONS, on_event=events.append) as runner:
            end = list(runner.start([ChatMessage("user", "Hello")], options=GenerationOptions(max_tokens=4)))[-1]
            assert end.full_message.text
    sources = [event.source for event in events if isinstance(event, FileFinished)]
    assert len(sources) == 2 and sources[0] != "present" == sources[1]


def test_sampling_given_at_loading_overrides_the_models(served):
    sampling = SamplingDefaults(temperature=0.0, top_k=1)
    with Leap.download_and_load("LFM2-350M", "Q4_0", OPTIONS, sampling=sampling) as runner:
        assert (runner._defaults.temperature, runner._defaults.top_k) == (0.0, 1)
        assert runner._defaults.min_p == 0.15  # the catalogue's


@pytest.mark.slow
def test_a_cancelled_task_stops_the_download(served):
    served.bytes_per_second = 200_000

    async def give_up():
        retries = DownloadOptions(retries=0)
        task = asyncio.create_task(Leap.download_and_load_async("LFM2-350M", "Q4_0", download=retries))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(give_up(), 100))


@pytest.mark.slow
def test_a_status_has_bytes_and_a_model_its_manifest(served):
    served.bytes_per_second = 2_000_000
    model, downloader = HuggingFaceDownloadableModel(OWNER, REPO, FILE), LeapModelDownloader()
    assert downloader.get_cached_manifest(model) is None
    downloader.request_download_model(model)
    size = model_path().stat().st_size
    while not (isinstance(status := downloader.query_status(model), DownloadInProgress) and status.bytes):
        assert downloader.get_error(model) is None
    assert status.total == size and 0 < status.bytes <= size
    served.bytes_per_second = None
    downloader.download_model(model)
    manifest = downloader.get_cached_manifest(model)
    assert isinstance(manifest, Manifest) and manifest.model == FILE
