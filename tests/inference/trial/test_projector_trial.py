"""Projectors that are new here are tried in a child process, and mutated ones end nothing but it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from leap_core.errors import LeapModelLoadingError
from leap_core.inference.gguf.checks import check_projector
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.inference.trial.trial_child import PROJECTOR, Subject
from leap_core.inference.trial.verdicts import require_sound
from tests.support.random_models import TINY_LFM2, write_random_model
from tests.support.random_projectors import TINY_AUDIO, TINY_VISION, write_random_projector

TRYING = "import sys; from pathlib import Path; from leap_core.inference.trial.trials import try_projector; " + (
    "try_projector(Path(sys.argv[1]), {'model': Path(sys.argv[2])}, lambda *_, **__: None)"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("trial")
    model = write_random_model(directory / "model.gguf", TINY_LFM2, "f16")
    both = write_random_projector(directory / "mmproj.gguf", 64, vision=TINY_VISION, audio=TINY_AUDIO)
    return model, both


@pytest.mark.slow
def test_a_valid_projector_passes_and_the_verdict_is_saved(files, leap_home) -> None:
    variables = {**os.environ, "LEAP_HOME": str(leap_home), "LEAP_TRY_MODELS": "1"}
    subject = Subject(files[1], PROJECTOR, {"model": files[0]})
    verdict = require_sound(subject, variables=variables)
    assert verdict is not None and verdict.is_sound and verdict.facts["sees"] and verdict.facts["hears"]
    assert require_sound(subject, variables=variables) == verdict


@pytest.mark.slow
def test_a_projector_of_another_model_is_refused_by_the_trial(files, leap_home, tmp_path) -> None:
    variables = {**os.environ, "LEAP_HOME": str(leap_home), "LEAP_TRY_MODELS": "1"}
    other = write_random_projector(tmp_path / "mmproj.gguf", 96, vision=TINY_VISION)
    with pytest.raises(LeapModelLoadingError, match="embeddings of width 96"):
        require_sound(Subject(other, PROJECTOR, {"model": files[0]}), variables=variables)


@pytest.mark.slow
def test_mutants_that_pass_the_checks_do_not_abort_the_process(files, tmp_path) -> None:
    """Bytes of the header changed: whatever passes the checks must load and encode, or be refused by an exception."""
    whole = files[1].read_bytes()
    end = read_gguf_header(files[1]).data_start
    dice = random.Random(11)
    passed = 0
    for number in range(400):
        data = bytearray(whole)
        for _ in range(dice.choice((1, 1, 2, 8))):
            data[dice.randrange(24, end)] = dice.choice((0, 1, 255, dice.randrange(256)))
        path = tmp_path / "mutated.gguf"
        path.write_bytes(data)
        try:
            check_projector(read_gguf_header(path))
        except LeapModelLoadingError:
            continue
        passed += 1
        if passed <= 12:  # each is a process
            done = subprocess.run(
                [sys.executable, "-c", TRYING, str(path), str(files[0])], capture_output=True, check=False
            )
            assert done.returncode in (0, 1), (number, done.stderr[-500:])
    assert 12 <= passed < 300
