"""``replacing``: the old content or the new one, never a part, and nothing left behind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from leap_core.system.files import replace_text, replacing


def test_the_name_has_the_old_content_until_the_block_ends(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("unfinished", [None, ".file.new"])
def test_an_error_leaves_the_old_content_and_nothing_else(tmp_path: Path, unfinished: str | None):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with (
        pytest.raises(ValueError, match="no more"),
        replacing(path, unfinished=None if unfinished is None else tmp_path / unfinished) as file,
    ):
        file.write(b"new")
        raise ValueError("no more")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_leftovers_of_a_killed_process_are_overwritten(tmp_path: Path):
    left = tmp_path / ".file.new"
    left.write_bytes(b"half of something longer")
    with replacing(tmp_path / "file", unfinished=left) as file:
        file.write(b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole" and not left.exists()


@pytest.mark.skipif(os.name != "posix", reason="rights")
def test_permissions_are_kept(tmp_path: Path):
    mask = os.umask(0o027)
    try:
        with replacing(tmp_path / "open") as file:
            file.write(b"")
        with replacing(tmp_path / "private", mode=0o600) as file:
            file.write(b"")
    finally:
        os.umask(mask)
    (tmp_path / "kept").touch()
    (tmp_path / "kept").chmod(0o640)
    replace_text(tmp_path / "kept", "text")
    replace_text(tmp_path / "new", "text")
    rights = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(tmp_path)}
    assert rights == {"open": 0o640, "private": 0o600, "kept": 0o640, "new": 0o600}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_written_to_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_text(tmp_path / "pipe", "text")
        assert os.read(reader, 9) == b"text" and stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    finally:
        os.close(reader)
