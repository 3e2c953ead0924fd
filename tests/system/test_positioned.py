"""Places of files on systems that have no call for them, and copies that such systems bring to the disk."""

from __future__ import annotations

import os

import pytest

from leap_core.system import files as linking
from leap_core.system.files import read_at, write_at


@pytest.fixture
def without_places(monkeypatch):
    """As on Windows: no pread, no pwrite, and fsync for files only that may be written."""
    monkeypatch.delattr(os, "pread")
    monkeypatch.delattr(os, "pwrite")


def test_a_place_is_read_and_written_and_the_files_own_position_stays(without_places, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one two three")
    with path.open("r+b", buffering=0) as file:
        file.seek(2)
        assert read_at(file.fileno(), 3, 4) == b"two"
        assert write_at(file.fileno(), b"TWO", 4) == 3
        assert file.tell() == 2
    assert path.read_bytes() == b"one TWO three"


def test_a_copy_is_brought_to_the_disk_by_a_descriptor_that_may_write(monkeypatch, tmp_path):
    import fcntl

    synced = []

    def fsync(descriptor: int) -> None:
        synced.append(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE)

    (tmp_path / "a").write_bytes(b"model")
    monkeypatch.setattr(os, "fsync", fsync)
    linking.place(tmp_path / "a", tmp_path / "b", mode="copy")
    assert synced == [os.O_RDWR]
