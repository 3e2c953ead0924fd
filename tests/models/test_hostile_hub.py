"""A hub that says strange things: each is one line of an error, or is passed over."""

from __future__ import annotations

import itertools

import pytest

from leap_core.errors import LeapModelDownloadError
from leap_core.models.store import Store
from tests.support.growth import check_growth
from tests.support.hub import FakeHub, ServedFile

from .conftest import Downloads


def test_an_empty_file_is_not_a_model(hub: FakeHub, download: Downloads, leap_home) -> None:
    hub.add_file("me/Empty-GGUF", "Empty-Q4_0.gguf", b"")
    with pytest.raises(LeapModelDownloadError, match="Empty-Q4_0.gguf in me/Empty-GGUF has no bytes"):
        download("me/Empty-GGUF")
    with pytest.raises(LeapModelDownloadError, match="has no bytes"):
        download(hub.add_plain("x/empty.gguf", b""))
    assert Store(leap_home / "models").installed() == []


def test_an_empty_file_on_disk_is_damaged(leap_home) -> None:
    directory = leap_home / "models" / "Mine-Q4_0"
    directory.mkdir(parents=True)
    (directory / "Mine-Q4_0.gguf").touch()
    (model,) = Store(leap_home / "models").installed()
    assert model.state == "damaged"


def _with_file(hub: FakeHub, name: str) -> ServedFile:
    hub.add_file("me/Odd-GGUF", "Odd-Q4_0.gguf", b"GGUF" + bytes(4000))
    files = hub._commits["me/Odd-GGUF"][hub._heads["me/Odd-GGUF"]]
    files[name] = ServedFile(name, b"x" * 2000, 2000, "0" * 64, True, '"x"')
    return files[name]


def test_a_lone_surrogate_in_a_name_is_skipped(hub: FakeHub, download: Downloads) -> None:
    _with_file(hub, "half-\ud800-Q8_0.gguf")
    assert download("me/Odd-GGUF").path.name == "Odd-Q4_0.gguf"
    with pytest.raises(LeapModelDownloadError) as caught:
        download("hf:me/Odd-GGUF/half-\ud800-Q8_0.gguf")
    caught.value.message.encode("utf-8", "backslashreplace")


@pytest.mark.parametrize("commit", ["c" * 100_000, "../../x", "", "a b"])
def test_an_invalid_commit_is_not_printed(hub: FakeHub, download: Downloads, commit: str) -> None:
    _with_file(hub, "Odd-Q8_0.gguf")
    hub._commits["me/Odd-GGUF"] = {commit: hub._commits["me/Odd-GGUF"][hub._heads["me/Odd-GGUF"]]}
    hub._heads["me/Odd-GGUF"] = commit
    with pytest.raises(LeapModelDownloadError) as caught:
        download("me/Odd-GGUF")
    assert len(caught.value.message) < 300


@pytest.mark.slow
def test_a_repository_of_many_files_is_planned_in_linear_time(hub: FakeHub, download: Downloads) -> None:
    numbers = itertools.count()

    def download_one_of(count: int) -> None:
        name = f"Many{next(numbers)}"
        repository, model = f"me/{name}-GGUF", f"{name}-Q4_0.gguf"
        hub.add_file(repository, model, b"GGUF" + bytes(4000))
        files = hub._commits[repository][hub._heads[repository]]
        for number in range(count):
            name = f"part{number % 9}/m{number}-Q4_0.gguf" if number % 2 else f"m{number}.txt"
            files[name] = ServedFile(name, b"x" * 2000, 2000, "0" * 64, True, '"x"')
        assert download(repository).path.name == model

    check_growth(download_one_of, 30_000)
