"""The built-in encoder, through leap."""

from __future__ import annotations

import numpy as np
import pytest

from leap_core import Leap, ModelLoadingOptions

DOCUMENTS = (
    "leap download resumes after a lost connection and verifies the file by its checksum.",
    "A session keeps every message of a conversation, and leap sessions lists them.",
    "A JSON schema is enforced while the answer is generated.",
    "Background jobs are done by a worker, which recovers them after a crash.",
)


@pytest.fixture(scope="module")
def runner():
    with Leap.load_for_embedding("builtin-embed", ModelLoadingOptions(cpu_threads=1)) as runner:
        yield runner


def test_vectors_have_unit_length_and_the_documented_dimensions(runner):
    vectors = runner.embed(DOCUMENTS, "document")
    assert vectors.shape == (4, 256) and runner.dimensions == 256 and runner.most_tokens == 512
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("question", "nearest"),
    [
        ("How do I fetch a model again when the network fails?", 0),
        ("Where are my chats kept?", 1),
        ("force the output to have a structure", 2),
        ("run tasks in the background", 3),
    ],
)
def test_the_document_that_answers_is_nearest(runner, question, nearest):
    scores = runner.embed(DOCUMENTS, "document") @ runner.embed([question], "query")[0]
    assert int(scores.argmax()) == nearest


def test_letter_case_and_inflection_do_not_matter(runner):
    one, other = runner.embed(["Download Models", "download model"], "query")
    assert one @ other > 0.99
