"""``leap models alias``, and the order of ``leap models list``."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from leap_core.models.builtin import model_path


@pytest.fixture
def mine(leap, tmp_path):
    """A model that is installed as Mine-Q8_0."""
    assert leap("models", "import", str(model_path()), "--name", "Mine", "--quant", "Q8_0").code == 0
    return "Mine-Q8_0"


def test_an_alias_is_created_listed_used_and_removed(leap, mine):
    assert "there are no aliases" in leap("models", "alias").stderr
    made = leap("models", "alias", "lfm-2.5", mine)
    assert (made.code, made.stdout) == (0, "") and "lfm-2.5 is now an alias of Mine-Q8_0" in made.stderr
    assert leap("models", "alias", "LFM-2.5").stdout.split() == ["model", mine, "name", "lfm-2.5"]
    assert leap("models", "alias", "lfm-2.5", "--format", "quiet").stdout == f"{mine}\n"
    assert leap("models", "path", "lfm-2.5").stdout == leap("models", "path", mine).stdout
    assert leap("models", "alias", "Lfm-2.5", "builtin").code == 0  # the same, spelled as before
    listed = leap("models", "alias", "--format", "json")
    assert json.loads(listed.stdout) == [{"name": "lfm-2.5", "model": "builtin"}]
    assert "warning" not in leap("config", "list").stderr
    assert leap("config", "get", "aliases.lfm-2.5").stdout == "builtin\n"
    assert leap("models", "alias", "lfm-2.5", "--remove").code == 0
    assert leap("models", "alias", "--format", "json").stdout == "[]\n"
    assert leap("config", "set", "aliases.x", mine).code == 0 and leap("models", "path", "x").code == 0


def test_the_target_of_an_alias_is_shown(leap, mine, tmp_path):
    told = leap("models", "alias", "later", "LFM2.5-350M")
    assert told.code == 0 and "not on this machine: leap download later fetches it" in told.stderr
    hidden = leap("models", "alias", mine.lower(), "builtin")
    assert hidden.code == 0 and "the installed model Mine-Q8_0 is hidden" in hidden.stderr
    shutil.copy(model_path(), tmp_path / "file.gguf")
    assert leap("models", "alias", "file", "file.gguf").code == 0
    assert leap("models", "alias", "file", "--format", "quiet").stdout == f"{tmp_path / 'file.gguf'}\n"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["a/b", "builtin"], "cannot be a model's name"),
        (["builtin", "LFM2.5-350M"], "cannot be a model's name"),
        (["b", "nosuchmodel"], "nosuchmodel"),
        (["b", "a"], "'a' is itself an alias"),
        (["b"], "there is no alias 'b'"),
        (["b", "--remove"], "there is no alias 'b'"),
        (["--remove"], "--remove needs the NAME"),
        (["a", "builtin", "--remove"], "--remove takes a NAME alone"),
    ],
)
def test_alias_errors_are_one_line(leap, args, says):
    leap("models", "alias", "a", "builtin")
    done = leap("models", "alias", *args)
    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1) and says in done.stderr
    assert json.loads(leap("models", "alias", "--format", "json").stdout) == [{"name": "a", "model": "builtin"}]


def test_an_alias_that_cannot_be_kept_is_not_announced(leap, leap_home):
    leap_home.mkdir(exist_ok=True)
    (leap_home / "config.toml").write_text("[aliases.x]\ny = 1\n")
    made = leap("models", "alias", "x", "builtin")
    assert made.code != 0 and "is a table there" in made.stderr and "is now an alias" not in made.stderr


def test_models_are_sorted_by_name_size_and_use(leap, leap_home):
    for number, name in enumerate("ABC"):
        directory = leap_home / "models" / f"{name}-Q8_0"
        directory.mkdir(parents=True)
        (directory / f"{name}-Q8_0.gguf").write_bytes(b"x" * 5000 * (3 - abs(1 - number)))
        (directory / ".in-use").touch()
        os.utime(directory / ".in-use", (0, [2000, 3000, 1000][number]))

    def names(*args: str) -> str:
        return "".join(row[0] for row in leap("models", "list", "--format", "quiet", *args).stdout.splitlines())

    assert (names(), names("--sort", "used")) == ("ABC", "BAC")
    assert names("--sort", "size")[0] == "B"
    rows = json.loads(leap("models", "--sort", "used", "--format", "json").stdout)
    assert rows[0]["used"] == 3000.0


def test_loading_a_model_counts_as_use(leap, mine, leap_home):
    from leap_core.models.store import hold

    file = leap_home / "models" / mine / ".in-use"
    os.utime(file, (0, 1000))
    with hold(leap_home / "models" / mine / f"{mine}.gguf"):
        assert file.stat().st_mtime > 1000


def test_removing_a_model_by_its_alias_is_refused(leap, mine, leap_home):
    assert leap("models", "alias", "fav", mine).code == 0
    for name in ("fav", "FAV"):
        refused = leap("models", "remove", name)
        assert (refused.code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert f"fav is an alias of {mine}" in refused.stderr and "--remove fav" in refused.stderr
    assert list((leap_home / "models" / mine).glob("*.gguf"))
    removed = leap("models", "remove", mine)
    assert removed.code == 0 and "the alias fav still means" in removed.stderr
