"""What people type, in one table: each line is a name and what it leads to, the same in all places that take a name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.client import JobsClient
from leap_core.batch.checking import check_batch
from leap_core.batch.settings import BatchSettings
from leap_core.errors import LeapError, LeapModelNotDownloadedError, LeapModelNotFoundError
from leap_core.models.catalogue import Catalogue
from leap_core.models.reference import parse_reference
from leap_core.models.resolving import Registry
from leap_core.opening import Leap
from leap_core.server.models.abilities import Offer
from tests.support.tables import check_each

TABLE = Path(__file__).with_name("names.txt")
"""``NAME => WHAT``: a repository and quantization, another reference, or an error and its hint. The first are what the
names mean; errors were read, and then written down as leap gives them."""


def lines() -> list[tuple[str, str]]:
    """The table."""
    return [
        (name, what) for line in TABLE.read_text("utf-8").splitlines() for name, _, what in [line.partition(" => ")]
    ]


def described(name: str, catalogue: Catalogue) -> str:
    """What a name leads to where nothing is installed."""
    try:
        named = parse_reference(name, catalogue, cwd=Path("/nowhere"))
    except LeapError as error:
        return f"error {error.message} | {error.hint}"
    entry = getattr(named, "entry", None)
    if entry is not None:
        return f"{entry.repo} {named.quantization or '-'}"  # type: ignore[union-attr]
    return f"{type(named).__name__} {' '.join(str(value or '-') for value in vars(named).values())}"


def test_each_name_leads_to_what_the_table_says() -> None:
    catalogue = Catalogue.load()

    def check(line: tuple[str, str]) -> None:
        found = described(line[0], catalogue)
        assert found == line[1], found

    assert len(lines()) > 300
    check_each(lines(), check, name=lambda line: line[0])


def test_no_two_models_of_the_catalogue_share_a_name() -> None:
    catalogue = Catalogue.load()

    def check(entry: object) -> None:
        for name in (entry.name, entry.repo, *entry.also):  # type: ignore[attr-defined]
            assert catalogue.called(name) == (entry, None), name

    check_each([*catalogue, *catalogue.families], check, name=lambda entry: entry.name)


def test_a_name_of_another_size_is_no_name_of_a_model() -> None:
    catalogue = Catalogue.load()

    def check(name: str) -> None:
        assert described(name, catalogue).startswith("error"), described(name, catalogue)

    others = ["gemma-31b", "gemma:31b", "qwen:34b", "qwen3:17b", "qwen3:59b", "deepseek-r1:15b", "granite4:13b"]
    check_each([*others, "qwen2.5-coder:15b-q4_K_M", "llama3:21b", "smollm2-17b-instruct"], check)


@pytest.mark.slow
def test_a_name_means_the_same_in_six_places(leap, leap_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line, configuration, Python, batches, jobs and the server; nothing is installed."""
    leap_home.mkdir(exist_ok=True)
    monkeypatch.chdir(leap_home)
    source = leap_home / "lines.jsonl"
    source.write_text('{"prompt": "hi"}\n')
    registry, serve = Registry(cwd=leap_home), Offer(cwd=leap_home).load_request

    def batch(name: str) -> None:
        settings = BatchSettings.of(source=str(source), output=str(leap_home / "out.jsonl"), model=name)
        with check_batch(settings, None, default_model=None, variables=os.environ, cwd=leap_home):
            pass

    with JobsClient(autostart=False) as jobs:

        def check(name: str) -> None:
            try:
                registry.resolve(name)
                return
            except LeapModelNotFoundError as error:
                expected = error
            ways = (Leap.load, batch, lambda name: jobs.generate("hi", model=name, cwd=leap_home), serve)
            for way in ways:
                with pytest.raises(LeapModelNotFoundError) as caught:
                    way(name)
                if way is not serve or isinstance(expected, LeapModelNotDownloadedError):
                    assert caught.value.message == expected.message, way
                    assert type(caught.value) is type(expected), way
            for command in (("models", "path", name), ("models", "default", name)):
                done = leap(*command)
                assert done.code in (2, 3) and expected.message in done.stderr, command

        others = ("LocalPath", "Url", "HubFile", "error model.bundle")
        names = [name for name, what in lines()[::6] if not what.startswith(others)]
        check_each([name for name in names if "://" not in name], check)  # a request names no addresses
