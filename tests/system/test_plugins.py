"""Entry points of installed packages, and their cache."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest

from leap_core.errors import LeapError
from leap_core.system.directories import Directories
from leap_core.system.plugins import TOOLS, cache_file, plugins


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory from which Python imports."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.setattr(sys, "path", [str(place)])
    return place


@pytest.fixture
def directories(tmp_path):
    return Directories.from_environment({"LEAP_HOME": str(tmp_path / "home")})


def install(place, package, entries, version="1"):
    metadata = place / f"{package}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(f"[{TOOLS}]\n{entries}\n")


def test_packages_are_scanned_again_only_when_the_installed_set_changes(place, directories, monkeypatch):
    install(place, "one", "first = one:first")
    assert list(plugins(TOOLS, directories)) == ["first"]
    with monkeypatch.context() as patched:
        patched.setattr(importlib.metadata, "distributions", lambda: pytest.fail("scanned again"))
        assert plugins(TOOLS, directories)["first"].value == "one:first"
    install(place, "two", "second = two:second")
    assert sorted(plugins(TOOLS, directories)) == ["first", "second"]


def test_two_environments_of_one_user_keep_their_plugins_apart(place, directories, tmp_path, monkeypatch):
    (other := tmp_path / "other").mkdir()
    install(place, "one", "first = one:first")
    install(other, "two", "second = two:second")
    sides = [("/srv/one/.venv", place, ["first"]), ("/srv/two/.venv", other, ["second"])]
    for scan in (importlib.metadata.distributions, lambda: pytest.fail("scanned again")):
        monkeypatch.setattr(importlib.metadata, "distributions", scan)
        for prefix, site, names in sides:
            monkeypatch.setattr(sys, "prefix", prefix)
            monkeypatch.setattr(sys, "path", [str(site)])
            assert list(plugins(TOOLS, directories)) == names


@pytest.mark.parametrize("text", ["", "[]", '{"installed": []}', '{"installed": 1, "plugins": [[1]]}'])
def test_a_damaged_cache_is_rewritten(place, directories, text):
    directories.cache.mkdir(parents=True)
    cache_file(directories).write_text(text)
    install(place, "one", "first = one:first")
    assert list(plugins(TOOLS, directories)) == ["first"]


def test_a_cache_that_cannot_be_written_does_no_harm(place, directories):
    directories.cache.parent.mkdir(parents=True)
    directories.cache.write_text("a file")
    install(place, "one", "first = one:first")
    assert list(plugins(TOOLS, directories)) == ["first"]


def test_names_that_are_taken_are_left_out_with_a_warning(place, directories):
    install(place, "one", "both = one:both\nours = one:ours\nno name = one:no")
    install(place, "two", "both = two:both")
    warnings: list[str] = []
    found = plugins(TOOLS, directories, reserved={"ours"}, on_warning=warnings.append)
    assert {name: each.package for name, each in found.items()} == {"both": "one"}
    assert len(warnings) == 3


def test_the_first_package_of_a_name_on_the_path_counts(place, directories, tmp_path, monkeypatch):
    (shadowed := tmp_path / "shadowed").mkdir()
    monkeypatch.setattr(sys, "path", [str(place), str(shadowed)])
    install(place, "a_plugin", "first = one:first")
    install(shadowed, "A-Plugin", "second = one:second", "2")
    (place / "broken-1.dist-info").mkdir()
    found = plugins(TOOLS, directories)
    assert {name: each.package for name, each in found.items()} == {"first": "a_plugin"}


def test_metadata_of_packages_without_plugins_are_not_parsed(place, directories, monkeypatch):
    install(place, "one", "first = one:first")
    (other := place / "other-1.dist-info").mkdir()
    (other / "METADATA").write_text("Name: other")
    parsed = importlib.metadata.PathDistribution.metadata.fget
    read = []
    monkeypatch.setattr(
        importlib.metadata.PathDistribution, "metadata", property(lambda self: read.append(parsed(self)) or read[-1])
    )
    assert list(plugins(TOOLS, directories)) == ["first"] and {each["Name"] for each in read} == {"one"}


@pytest.mark.parametrize("code", ["import nothing_such", "raise SystemExit", "1 +", "raise RuntimeError('a\\nb')"])
def test_whatever_an_import_raises_becomes_one_line(place, directories, code):
    install(place, "one", "first = failing_plugin:first")
    (place / "failing_plugin.py").write_text(code)
    with pytest.raises(LeapError, match="first.*package one.*cannot be loaded") as caught:
        plugins(TOOLS, directories)["first"].load()
    assert "\n" not in caught.value.message
