"""Adapters and vocoders that are new here are tried in a child process, and hostile ones end nothing but it."""

from __future__ import annotations

import os
from pathlib import Path

import gguf
import numpy as np
import pytest

from leap_core import ChatMessage, GenerationOptions, Leap, LeapModelLoadingError, ModelLoadingOptions
from leap_core.inference.runner import InProcessRunner
from leap_core.inference.trial.trial_child import ADAPTER, AUDIO_DECODER, MODEL, Subject
from leap_core.inference.trial.verdicts import require_sound
from leap_core.testing.miniature_speech import VOCODER_FILE, write_miniature_speech_model
from tests.support.random_adapters import write_random_adapter
from tests.support.random_models import write_random_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("trial") / "model.gguf", quantization="f32")


@pytest.fixture
def variables(leap_home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("LEAP_TRY_MODELS", "1")
    return {**os.environ, "LEAP_HOME": str(leap_home)}


def write_hostile_adapter(path: Path, model: Path) -> Path:
    """Well-formed, and fitting the model by its header; llama.cpp asserts that a name is a text."""
    source = gguf.GGUFReader(write_random_adapter(path.with_suffix(".sound"), model))
    writer = gguf.GGUFWriter(path, "lfm2")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_key_value("adapter.lora.alpha", 16.0, gguf.GGUFValueType.FLOAT64)
    for tensor in source.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.slow
def test_a_valid_adapter_passes_and_the_verdict_is_saved(model, variables, tmp_path) -> None:
    subject = Subject(write_random_adapter(tmp_path / "adapter.gguf", model), ADAPTER, {MODEL: model})
    verdict = require_sound(subject, variables=variables)
    assert verdict is not None and verdict.is_sound and verdict.facts["finite"]
    assert require_sound(subject, variables=variables) == verdict


@pytest.mark.slow
def test_a_hostile_adapter_ends_only_its_child_process(model, variables, tmp_path) -> None:
    hostile = write_hostile_adapter(tmp_path / "hostile.gguf", model)
    with InProcessRunner(model, "m", ModelLoadingOptions(cpu_threads=1)) as runner:
        stream = runner.start([ChatMessage("user", "hello")], options=GenerationOptions(max_tokens=200))
        next(stream)
        for _ in range(2):  # the second time by the kept verdict
            with pytest.raises(LeapModelLoadingError, match="not safe to load"):
                runner.set_adapters([hostile])
        with pytest.raises(LeapModelLoadingError, match="not safe to load"):
            runner.start([ChatMessage("user", "hello")], options=GenerationOptions(adapters=[hostile]))
        assert list(stream)[-1].finish_reason is not None


@pytest.mark.slow
def test_an_adapter_with_nan_weights_is_refused(model, variables, tmp_path) -> None:
    path = write_random_adapter(tmp_path / "adapter.gguf", model, alpha=3e38)
    with pytest.raises(LeapModelLoadingError, match="not finite"):
        require_sound(Subject(path, ADAPTER, {MODEL: model}), variables=variables)


@pytest.mark.slow
def test_a_vocoder_is_tried_by_speaking_and_a_wrong_one_is_refused(model, variables, tmp_path) -> None:
    speaking = write_miniature_speech_model(tmp_path)
    vocoder = tmp_path / VOCODER_FILE
    verdict = require_sound(Subject(vocoder, AUDIO_DECODER, {MODEL: speaking}), variables=variables)
    assert verdict is not None and verdict.facts["samples"] > 0
    with pytest.raises(LeapModelLoadingError, match="speaks for a model of width"):
        require_sound(Subject(vocoder, AUDIO_DECODER, {MODEL: model}), variables=variables)


@pytest.mark.slow
def test_a_vocoder_that_was_tried_is_loaded(variables, tmp_path) -> None:
    path = write_miniature_speech_model(tmp_path)
    with Leap.load(path) as runner:
        assert runner.speaks
    assert len(list((Path(variables["LEAP_HOME"])).rglob("trials/*.json"))) >= 4  # by place and by content, for both
