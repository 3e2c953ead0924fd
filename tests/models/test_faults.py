"""Every way in which a server may misbehave ends in the right file, or in one clear error and no file."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from pathlib import Path

import pytest

from leap_core.errors import (
    LeapModelDownloadError,
    LeapModelDownloadSha256MismatchError,
    LeapModelDownloadSizeMismatchError,
)
from leap_core.models.download.downloading import Download, DownloadOptions, Event, Progress
from leap_core.models.download.transfer import BLOCK
from leap_core.models.http import LONGEST_RETRY_AFTER, DownloadStopped, Retryable, RetryPolicy
from tests.support.hub import API, FILES, RESOLVE, FakeHub, Fault

REPO, FILE = "LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_K_M.gguf"
NAME = "LFM2-350M"


@pytest.fixture(autouse=True)
def served(hub: FakeHub, content: bytes) -> None:
    hub.add_file(REPO, FILE, content)


@pytest.fixture
def target(leap_home: Path) -> Path:
    return leap_home / "models" / "LFM2-350M-Q4_K_M" / FILE


def nothing_but_parts(target: Path) -> bool:
    """Whether nothing has been left under the final name."""
    return not target.exists() and not target.with_name("LFM2-350M-Q4_K_M.json").exists()


def test_a_whole_download_is_right_and_recorded(download, content, target):
    found = download(NAME)
    assert found.path == target and target.read_bytes() == content
    assert found.sampling.temperature == 0.3 and found.parser_name == "lfm"
    left = sorted(path.name for path in target.parent.iterdir() if not path.name.startswith("."))
    assert left == ["LFM2-350M-Q4_K_M.gguf", "LFM2-350M-Q4_K_M.json"]


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 3])
def test_dropped_connections_are_resumed(hub, download, content, target, times):
    hub.fault("drop", after=600_000, times=times)
    download(NAME)
    assert target.read_bytes() == content
    assert hub.bytes_served() < len(content) + times * BLOCK
    ranges = [request.headers.get("range") for request in hub.requests(FILES)]
    assert len(ranges) == times + 1 and len(set(ranges)) == times + 1
    assert all("if-range" in request.headers for request in hub.requests(FILES)[1:])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "after", "times"), [("truncate", 700_000, 2), ("shorten", 600_000, 99)])
def test_a_body_that_ends_early_or_is_shorter_than_the_range_is_resumed(
    hub, download, content, target, kind, after, times
):
    hub.fault(kind, after=after, times=times)
    download(NAME)
    assert target.read_bytes() == content


@pytest.mark.slow
def test_a_stalled_connection_is_given_up_and_resumed(hub, download, content, target):
    hub.fault("stall", after=500_000)
    download.options = DownloadOptions(retry_delay=0.01, stall_seconds=0.4)
    download(NAME)
    assert target.read_bytes() == content
    assert "sent nothing for 0.4 s" in download.notices


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 408])
@pytest.mark.parametrize("where", [API, RESOLVE, FILES])
def test_temporary_statuses_are_retried(hub, download, content, target, status, where):
    hub.fault("status", where, status=status, times=2)
    download(NAME)
    assert target.read_bytes() == content
    assert str(status) in download.notices


@pytest.mark.slow
def test_retry_after_is_honoured(hub, download, content, target):
    hub.fault("status", status=429, retry_after="1")
    began = time.monotonic()
    download(NAME)
    assert target.read_bytes() == content and time.monotonic() - began > 0.9
    assert "429 Too Many Requests; trying again in 1.0 s" in download.notices


def test_a_retry_after_of_hours_is_not_waited_for(hub, download, target):
    hub.fault("status", status=503, retry_after="7200", times=9)
    with pytest.raises(LeapModelDownloadError, match="wants us to wait 7200 s"):
        download(NAME)
    assert nothing_but_parts(target)
    stop, longest = threading.Event(), Retryable("busy", LONGEST_RETRY_AFTER)
    with pytest.raises(DownloadStopped):  # at the end of the wait, which the longest may have
        RetryPolicy(stop, on_wait=lambda *_: stop.set()).failed(longest)
    with pytest.raises(LeapModelDownloadError, match="^busy$"):
        RetryPolicy(threading.Event(), retries=0).failed(longest)


@pytest.mark.slow
@pytest.mark.parametrize("where", [API, FILES])
def test_a_server_that_stays_broken_ends_in_an_error(hub, download, target, where):
    hub.fault("status", where, status=500, times=99)
    with pytest.raises(LeapModelDownloadError, match=r"500 Internal Server Error \(5 attempts\)") as caught:
        download(NAME)
    assert caught.value.hint is not None and nothing_but_parts(target)


def test_nobody_listening_ends_in_an_error(hub, download, target):
    hub.close()
    with pytest.raises(LeapModelDownloadError, match="cannot connect to 127.0.0.1"):
        download(NAME)
    assert nothing_but_parts(target)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "headers", "message", "hint"),
    [
        (401, {}, "refuses .* \\(401\\)", "set HF_TOKEN"),
        (
            403,
            {"X-Error-Code": "GatedRepo"},
            "refuses .* \\(403\\)",
            "accept its terms at http://[^ ]*/LiquidAI/LFM2-350M",
        ),
        (404, {"X-Error-Code": "RepoNotFound"}, "has no .* \\(404\\)", "check the repository's name"),
        (418, {}, "answered 418", None),
    ],
)
@pytest.mark.parametrize("where", [API, RESOLVE])
def test_final_statuses_are_explained(hub, download, target, where, status, headers, message, hint):
    hub.fault("status", where, status=status, headers=headers, times=9)
    with pytest.raises(LeapModelDownloadError, match=message) as caught:
        download(NAME)
    assert caught.value.hint is None if hint is None else re.search(hint, caught.value.hint)
    assert nothing_but_parts(target)
    assert len(hub.requests(where)) == 1, "what does not pass is not tried again"


def test_one_corrupted_transfer_is_repeated(hub, download, content, target):
    hub.fault("corrupt", after=1_234_567)
    download(NAME)
    assert target.read_bytes() == content
    assert "does not have the right SHA-256; starting over" in download.notices


def test_a_server_that_keeps_corrupting_ends_in_an_error(hub, download, target):
    hub.fault("corrupt", after=1_234_567, times=99)
    with pytest.raises(LeapModelDownloadSha256MismatchError, match="arrived with SHA-256 [0-9a-f]{64} instead of"):
        download(NAME)
    assert nothing_but_parts(target)
    assert not list(target.parent.glob("*.part")), "what is known to be wrong is not kept"


def test_a_shorter_file_than_announced_is_never_taken(hub, download, target):
    hub.fault("shorten", after=1_000_000, times=99)
    hub.fault("ignore_range", times=99)
    with pytest.raises(LeapModelDownloadSizeMismatchError, match="1000000 bytes instead of 2000003"):
        download(NAME)
    assert nothing_but_parts(target)


def test_a_server_without_ranges_still_delivers(hub, download, content, target):
    hub.fault("ignore_range", times=99)
    hub.fault("drop", after=900_000)
    download(NAME)
    assert target.read_bytes() == content


@pytest.mark.slow
def test_416_starts_over_and_then_gives_up(hub, download, content, target):
    hub.fault("status", status=416)
    download(NAME)
    assert target.read_bytes() == content
    target.unlink()
    hub.fault("status", status=416, times=99)
    with pytest.raises(LeapModelDownloadSizeMismatchError):
        download(NAME)


@pytest.mark.slow
def test_a_file_that_changed_between_attempts_starts_over(hub, download, content, target):
    hub.fault("truncate", after=1_000_000, times=99)
    download.options = DownloadOptions(retries=0)
    with pytest.raises(LeapModelDownloadError):
        download(NAME)
    assert list(target.parent.glob("*.part"))
    hub.faults.clear()
    newer = content[::-1] + b"more"
    hub.add_file(REPO, FILE, newer)
    download(NAME)
    assert target.read_bytes() == newer
    assert "the remote file has changed; LFM2-350M-Q4_K_M.gguf starts over" in download.notices


@pytest.mark.slow
def test_a_newer_file_replaces_an_installed_one(hub, download, content, target):
    download(NAME)
    hub.add_file(REPO, FILE, content + b"newer")
    download(NAME)
    assert target.read_bytes() == content + b"newer"


@pytest.mark.slow
def test_an_installed_model_is_not_downloaded_again(hub, download, content):
    download(NAME)
    served = hub.bytes_served()
    download(NAME)
    assert hub.bytes_served() == served
    download.options = DownloadOptions(force=True)
    download(NAME)
    assert hub.bytes_served() == 2 * len(content)


def test_an_installed_model_needs_no_hub(hub, download, target):
    download(NAME)
    hub.fault("status", API, status=401, times=9)
    assert download(NAME).path == target
    assert "the copy on this machine is used" in download.notices


def test_a_plain_url_is_resumed_by_its_etag(hub, download, content, leap_home):
    url = hub.add_plain("models/Tiny-Q8_0.gguf", content)
    hub.fault("drop", "/plain/", after=800_000, times=2)
    found = download(url)
    assert found.path == leap_home / "models" / "Tiny-Q8_0" / "Tiny-Q8_0.gguf"
    assert found.path.read_bytes() == content
    assert {request.headers.get("if-range") for request in hub.requests("/plain/")[2:]} == {f'"{sha(content)[:16]}"'}


def test_a_plain_url_that_changes_while_it_is_fetched_starts_over(hub, download, content):
    url = hub.add_plain("Tiny-Q8_0.gguf", content)
    hub.fault("drop", "/plain/", after=800_000, times=99)
    download.options = DownloadOptions(retries=0)
    with pytest.raises(LeapModelDownloadError):
        download(url)
    hub.faults.clear()
    hub.add_plain("Tiny-Q8_0.gguf", content[::-1])
    assert download(url).path.read_bytes() == content[::-1]
    assert "has changed" in download.notices


def test_without_a_validator_nothing_is_resumed(hub, download, content):
    url = hub.add_plain("Tiny-Q8_0.gguf", content, etag=None)
    hub.fault("drop", "/plain/", after=800_000, times=99)
    download.options = DownloadOptions(retries=0)
    with pytest.raises(LeapModelDownloadError):
        download(url)
    hub.faults.clear()
    hub.add_plain("Tiny-Q8_0.gguf", content[::-1], etag=None)
    assert download(url).path.read_bytes() == content[::-1]
    assert "sends no ETag" in download.notices


def test_a_login_page_is_not_a_model(hub, download, leap_home):
    url = hub.add_plain("Tiny-Q8_0.gguf", b"<!doctype html>" + b" " * 4000)
    with pytest.raises(LeapModelDownloadError, match="a document, not a GGUF file"):
        download(url)
    assert not list(leap_home.rglob("*.gguf"))


@pytest.mark.slow
def test_stopping_keeps_received_bytes(hub, variables, content, target):
    hub.bytes_per_second = 1_000_000
    stop = threading.Event()

    def stop_half_way(event: Event) -> None:
        if isinstance(event, Progress) and event.bytes > 500_000:
            stop.set()

    with pytest.raises(DownloadStopped):
        Download(stop=stop, on_event=stop_half_way).run(NAME, None, None)
    hub.bytes_per_second = None
    before = hub.bytes_served()
    assert 0 < before < len(content)
    Download().run(NAME, None, None)
    assert target.read_bytes() == content
    assert hub.bytes_served() < len(content) + 2 * BLOCK


@pytest.mark.slow
def test_garbage_in_the_state_file_is_harmless(hub, download, content, target):
    for garbage in (b"", b"{", b"[]\n####", b'{"size": 2000003}\n########', bytes(range(256))):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.with_name(FILE + ".part.state").write_bytes(garbage)
        target.with_name(FILE + ".part").write_bytes(b"x" * 3_000_000)
        download(NAME)
        assert target.read_bytes() == content
        target.unlink()


@pytest.mark.slow
def test_progress_marks_for_bytes_not_on_disk_are_detected(hub, download, content, target):
    """As after a power failure: the state says that blocks are there, and the part has zeros."""
    hub.fault("truncate", after=1_500_000, times=99)
    download.options = DownloadOptions(retries=0)
    with pytest.raises(LeapModelDownloadError):
        download(NAME)
    hub.faults.clear()
    part = target.with_name(FILE + ".part")
    part.write_bytes(bytes(len(part.read_bytes())))
    download(NAME)
    assert target.read_bytes() == content


@pytest.mark.slow
def test_several_connections_fetch_one_file(hub, variables, content, target, monkeypatch):
    monkeypatch.setattr("leap_core.models.download.transfer.SMALLEST_SPLIT", BLOCK)
    monkeypatch.setattr("leap_core.models.download.transfer.MEASURED_SECONDS", 0.1)
    monkeypatch.setattr("leap_core.models.download.transfer.WORTH_SECONDS", 0.1)
    big = content * 3
    hub.add_file(REPO, FILE, big)
    hub.bytes_per_second = 2_000_000
    Download(DownloadOptions(connections=4)).run(NAME, None, None)
    assert target.read_bytes() == big
    assert len(hub.requests(FILES)) >= 3
    assert hub.bytes_served() < len(big) + 8 * BLOCK


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.slow
def test_a_server_that_refuses_a_second_connection_gets_one(hub, variables, content, target, monkeypatch):
    monkeypatch.setattr("leap_core.models.download.transfer.SMALLEST_SPLIT", BLOCK)
    monkeypatch.setattr("leap_core.models.download.transfer.MEASURED_SECONDS", 0.1)
    monkeypatch.setattr("leap_core.models.download.transfer.WORTH_SECONDS", 0.1)
    hub.bytes_per_second = 2_000_000
    taken = hub.take_fault

    def refuse_the_second(path, kinds, body=None):
        second = "status" in kinds and FILES in path and len(hub.requests(FILES)) == 2
        return Fault("status", status=403) if second else taken(path, kinds, body)

    monkeypatch.setattr(hub, "take_fault", refuse_the_second)
    Download(DownloadOptions(connections=4)).run(NAME, None, None)
    assert target.read_bytes() == content
    assert [request.status for request in hub.requests(FILES)].count(403) == 1


@pytest.mark.slow
def test_two_versions_are_never_mixed_where_nothing_tells_them_apart(hub, download, content):
    """No hash, no ETag, the same length: the connection breaks, and the file behind it is another one."""
    url = hub.add_plain("Tiny-Q8_0.gguf", content, etag=None)
    hub.fault("truncate", "/plain/", after=1_000_000)
    taken = hub.take_fault

    def change_after_the_fault(path, kinds, body=None):
        fault = taken(path, kinds, body)
        if fault is not None:
            hub.add_plain("Tiny-Q8_0.gguf", content[::-1], etag=None)
        return fault

    hub.take_fault = change_after_the_fault
    assert download(url).path.read_bytes() == content[::-1]
    assert "no ETag to resume with; starting over" in download.notices
