"""Where things lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leap_core.errors import LeapError
from leap_core.models.hub_settings import ForeignCaches
from leap_core.system.directories import Directories


def test_everything_is_below_leap_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Directories.from_environment({"LEAP_HOME": str(tmp_path / "home")})
    for path in (found.config, found.data, found.models, found.cache, found.logs, found.run_path, found.config_file):
        assert path == tmp_path / "home" or tmp_path / "home" in path.parents
    assert not (tmp_path / "home").exists()
    monkeypatch.setenv("LEAP_HOME", str(tmp_path / "home"))
    assert Directories.from_environment().models == found.models


def test_without_leap_home_the_system_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    found = Directories.from_environment({})
    assert found.models.name == "models" and "leap" in found.models.parts
    assert len({found.config, found.data, found.cache, found.logs, found.run_path}) >= 4


@pytest.mark.skipif(os.name != "posix", reason="of the system's users")
def test_a_missing_home_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    def nobody(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in [name for name in os.environ if name == "HOME" or name.startswith("XDG_")]:
        monkeypatch.delenv(name)
    with pytest.raises(LeapError, match="no home directory"):
        Directories.from_environment({})
    assert ForeignCaches.from_environment({}).files_of("me/Some-GGUF") == {}
    assert ForeignCaches.from_environment({"HF_HOME": "~nobody/x"}).files_of("me/Some-GGUF") == {}


def test_the_run_directory_is_private(tmp_path: Path) -> None:
    found = Directories.from_environment({"LEAP_HOME": str(tmp_path)})
    (tmp_path / "run").mkdir(mode=0o755)
    assert found.run.stat().st_mode & 0o777 == 0o700
    assert os.listdir(found.run) == []
