"""The side of a cluster's process that has a model, without a cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leap_core.batch.clusters.line_answerer import GivenLine, LineAnswerer, ModelOfCluster
from leap_core.batch.clusters.opening import address_of, numbers_of_workers
from leap_core.batch.input.lines import RequestReader
from leap_core.batch.settings import fingerprint_of
from leap_core.conversation.options import ModelLoadingOptions
from leap_core.errors import LeapError, LeapGenerationError, LeapModelNotFoundError, LeapOptionsError
from leap_core.errors import LeapUnavailableError as Unavailable
from leap_core.models.builtin import model_path

from ..conftest import AnsweringRunner

LOADING = ModelLoadingOptions()
MODEL = ModelOfCluster("builtin", "/nowhere/builtin.gguf", "0" * 64, "", LOADING)


def given(place: int, prompt: str) -> GivenLine:
    raw = b'{"custom_id": "id-%d", "prompt": "%s"}' % (place, prompt.encode())
    return GivenLine(place, place + 1, raw, RequestReader().read(raw).digest(f"id-{place}"))


def answered(answerer: LineAnswerer, count: int) -> dict:
    outcomes = []
    while len(outcomes) < count:
        outcomes += answerer.exchange([], 10.0)
    return {place: (custom_id, answer) for place, custom_id, answer in outcomes}


def test_lines_of_several_blocks_come_back_by_place():
    answerer = LineAnswerer(MODEL, RequestReader(), 2)
    failing = {"b": LeapGenerationError("broken")}
    answerer._runner = AnsweringRunner(lambda text: failing.get(text, f"<{text}>"))
    assert answerer.exchange([], 0.0) == []
    answerer.exchange([], 0.0)
    early = answerer.exchange([given(7, "a"), given(9, "b")], 0.0) + answerer.exchange([given(4, "c")], 0.0)
    outcomes = answered(answerer, 3 - len(early)) | {place: (name, answer) for place, name, answer in early}
    assert outcomes[7][0] == "id-7" and outcomes[7][1][0].full_message.text == "<a>"
    assert isinstance(outcomes[9][1], LeapError) and outcomes[4][1][0].full_message.text == "<c>"


def test_a_lost_model_is_an_outcome_without_a_place():
    answerer = LineAnswerer(MODEL, RequestReader(), 2)
    answerer._runner = AnsweringRunner(lambda _: Unavailable("the model is gone"))
    (outcome,) = [*answerer.exchange([given(0, "a")], 10.0)]
    assert outcome.place is None and "gone" in str(outcome.answer)


def test_a_node_without_the_model_says_so():
    with pytest.raises(LeapModelNotFoundError, match="has no model with the SHA-256 0000000000000000") as error:
        MODEL.reference_here()
    assert "a path that all nodes share" in error.value.hint
    with pytest.raises(Unavailable, match="and this is 0.0.1"):
        ModelOfCluster("builtin", "", "", "", LOADING, version="0.0.1").reference_here()


@pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet")
def test_a_model_is_found_by_name_by_path_and_by_its_digest():
    fingerprint = fingerprint_of("builtin", LOADING, variables=os.environ, cwd=Path.cwd())
    assert ModelOfCluster("builtin", "", "", fingerprint, LOADING).reference_here() == "builtin"
    path = str(model_path())
    by_path = fingerprint_of(path, LOADING, variables=os.environ, cwd=Path.cwd())
    assert ModelOfCluster("other-name", path, "", by_path, LOADING).reference_here() == path
    from leap_core.models.digests import ModelDigests
    from leap_core.system.directories import Directories

    digest = ModelDigests(Directories.from_environment(os.environ)).of(model_path())
    assert ModelOfCluster("other-name", "", digest, fingerprint, LOADING).reference_here() == "builtin"


def test_worker_counts_and_addresses_are_parsed():
    assert [numbers_of_workers(text) for text in (None, "3", "2..8")] == [(1, None), (1, 3), (2, 8)]
    for wrong in ("0", "8..2", "x", "-1", "2.."):
        with pytest.raises(LeapOptionsError):
            numbers_of_workers(wrong)
    assert (address_of("ray", {}), address_of("ray://h:10001", {"RAY_ADDRESS": "x"})) == (None, "ray://h:10001")
    assert address_of("ray", {"RAY_ADDRESS": "10.0.0.7:6379"}) == "10.0.0.7:6379"
    with pytest.raises(LeapOptionsError, match="neither ray nor"):
        address_of("slurm", {})
