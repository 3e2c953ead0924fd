"""Where leap keeps things is where platformdirs says, also where it is not asked."""

from __future__ import annotations

import sys
from pathlib import Path

import platformdirs
import pytest

from leap_core.system.directories import PLAIN_PLACES, Directories


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"HOME": "/"},
        {"HOME": "/a/b//"},
        {"HOME": "relative"},
        {"HOME": ""},
        {"XDG_CONFIG_HOME": ""},
        {"XDG_CONFIG_HOME": "/etc/x", "XDG_STATE_HOME": "/var/y/"},
        {"XDG_DATA_HOME": "relative", "XDG_CACHE_HOME": "/var//c"},
        {"XDG_CACHE_HOME": " /c"},
        {"XDG_STATE_HOME": "  "},
    ],
    ids=str,
)
def test_directories_equal_those_of_platformdirs(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name in ("LEAP_HOME", *PLAIN_PLACES):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    system = platformdirs.PlatformDirs("leap", appauthor=False)
    found = Directories.from_environment()
    assert found.config == Path(system.user_config_dir) and found.data == Path(system.user_data_dir)
    assert found.cache == Path(system.user_cache_dir) and found.logs == Path(system.user_log_dir)
    assert found.run_path == Path(system.user_state_dir) / "run"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs is asked")
def test_platformdirs_is_not_imported_for_simple_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAP_HOME", *PLAIN_PLACES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setattr(platformdirs, "PlatformDirs", None)
    assert Directories.from_environment().cache == Path("/home/someone/.cache/leap")
