"""A batch over an endpoint with faults, killed on the way: short for ``scripts/endpoint_batch_under_kills.py``."""

from __future__ import annotations

import sys
import time

import pytest

from ...end_to_end.conftest import ROOT
from .fake_server import says

sys.path.insert(0, str(ROOT / "scripts"))
import endpoint_batch_under_kills  # noqa: E402


@pytest.mark.slow
def test_each_line_is_answered_once_by_its_schema_and_the_key_is_not_shown(fake, tmp_path, capsys):
    def answer(body):
        time.sleep(0.02)  # the batch still runs when the kill comes
        return '{"colour": "red", "n": 7}' if "lot" in str(body["messages"]) else "?"

    fake.always = says(answer)
    assert endpoint_batch_under_kills.trial(tmp_path, fake.url, 120, 1, "m"), capsys.readouterr().out
