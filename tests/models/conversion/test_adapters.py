"""Adapters of PEFT's: converted, told what they are, refused by a wrong base, and folded in."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from leap_core.errors import LeapModelLoadingError
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.models.builtin import model_path
from leap_core.models.conversion.adapters import convert_adapter, merge
from leap_core.models.conversion.conversion_child import Stopped
from leap_core.models.conversion.converting import convert_text
from leap_core.models.conversion.quantizing import Making

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
import checkpoints  # noqa: E402


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> dict[str, tuple[Path, Path]]:
    """By family: a model, and an adapter's directory."""
    top = tmp_path_factory.mktemp("adapters")
    made = {}
    for family in ("lfm2", "moe", "llama"):
        checkpoints.write_checkpoint(top / family, family, model_path("builtin"))
        convert_text(top / family, top / f"{family}.gguf", "F32", Making())
        made[family] = (
            top / f"{family}.gguf",
            checkpoints.write_adapter(top / f"{family}-style", family, "someone/Base"),
        )
    return made


def values_of(path: Path, name: str) -> np.ndarray:
    tensor = next(each for each in read_gguf_header(path).tensors if each.name == name)
    return np.fromfile(path, np.float32, tensor.elements, offset=tensor.offset).reshape(tuple(reversed(tensor.shape)))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["lfm2", "moe", "llama"])
def test_llama_cpp_answers_the_same_with_an_adapter_and_with_it_folded_in(pairs, family, tmp_path):
    from leap_core.inference.llama.context import LlamaContext
    from leap_core.inference.llama.model import LlamaAdapter, LlamaModel

    base, directory = pairs[family]
    convert_adapter(directory, base, tmp_path / "style.gguf")
    merge(base, [(tmp_path / "style.gguf", 0.5)], tmp_path / "merged.gguf", Making())

    def logits(path: Path, *adapters: Path) -> np.ndarray:
        model = LlamaModel(path)
        context = LlamaContext(model, cells=64, slots=1, batch_size=64, threads=1)
        context.set_adapters([(LlamaAdapter(each, model), 0.5) for each in adapters])
        index = context.add(0, 0, [5, 9, 77, 300], output=True)
        context.decode()
        return context.logits(index).copy()

    plain, beside, within = logits(base), logits(base, tmp_path / "style.gguf"), logits(tmp_path / "merged.gguf")
    assert np.abs(beside - within).max() < 0.02 * np.abs(within).max()
    assert np.abs(plain - within).max() > 10 * np.abs(beside - within).max()


@pytest.mark.slow
def test_an_adapter_has_base_rank_and_alpha(pairs, leap, tmp_path):
    base, directory = pairs["lfm2"]
    done = leap("models", "convert", str(directory), "--base", str(base), "-o", str(tmp_path / "style.gguf"))
    assert done.code == 0, done
    info = leap("models", "info", str(tmp_path / "style.gguf"), "--format", "json")
    assert json.loads(info.stdout)["adapter"] == {"base": "Base", "rank": 4, "alpha": 8.0}


@pytest.mark.slow
def test_a_wrong_base_is_refused(pairs, tmp_path):
    with pytest.raises(LeapModelLoadingError, match="cannot be used with"):
        convert_adapter(pairs["lfm2"][1], model_path("builtin"), tmp_path / "x.gguf")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "problem"), [({"use_dora": True}, "DoRA"), ({"lora_alpha": "8"}, "lora_alpha is 8")]
)
def test_other_kinds_are_refused(pairs, tmp_path, change, problem):
    base, _ = pairs["lfm2"]
    directory = checkpoints.write_adapter(tmp_path / "other", "lfm2", "x")
    settings = json.loads((directory / "adapter_config.json").read_text())
    (directory / "adapter_config.json").write_text(json.dumps(settings | change))
    with pytest.raises(LeapModelLoadingError, match=problem):
        convert_adapter(directory, base, tmp_path / "x.gguf")


@pytest.mark.slow
def test_merging_adds_scaled_products(pairs, tmp_path, leap, leap_home):
    base, directory = pairs["lfm2"]
    convert_adapter(directory, base, tmp_path / "style.gguf")
    done = leap("models", "merge", str(base), "--lora", f"{tmp_path / 'style.gguf'}=0.25", "-o", "Both")
    assert done.code == 0, done
    assert Path(done.stdout.strip()).parent.name == "Both-F16"
    name = "blk.2.attn_q.weight"
    first, second = (values_of(tmp_path / "style.gguf", f"{name}.lora_{side}") for side in "ab")
    wanted = values_of(base, name) + 0.25 * 8 / 4 * (second @ first)
    assert np.allclose(values_of(Path(done.stdout.strip()), name), wanted, atol=1e-6)
    again = leap("models", "merge", str(base), "--lora", str(tmp_path / "style.gguf"), "--name", "Both")
    assert again.code != 0 and "there is a model Both-F16 already" in again.stderr
    own = leap("models", "merge", "Both", "--lora", str(tmp_path / "style.gguf"))
    assert own.code != 0 and "there is a model Both-F16 already" in own.stderr


@pytest.mark.slow
def test_merging_replaces_a_file_only_when_that_is_asked_for(pairs, tmp_path, leap):
    base, directory = pairs["lfm2"]
    style = tmp_path / "style.gguf"
    convert_adapter(directory, base, style)
    (tmp_path / "both.gguf").write_bytes(b"mine")
    content = style.read_bytes()
    command = ("models", "merge", str(base), "--lora", str(style), "-o")
    done = leap(*command, "both.gguf")
    assert done.code == 2 and "both.gguf exists; --replace takes its place" in done.stderr
    for source in (base, style):
        done = leap(*command, str(source), "--replace")
        assert done.code == 2 and "input and output at once" in done.stderr
    assert (tmp_path / "both.gguf").read_bytes() == b"mine" and style.read_bytes() == content
    assert leap(*command, "both.gguf", "--replace").code == 0


@pytest.mark.slow
def test_a_merge_without_a_name_has_the_name_of_its_model(pairs, tmp_path, leap):
    base, directory = pairs["lfm2"]
    convert_adapter(directory, base, tmp_path / "style.gguf")
    (tmp_path / "Mine-Q8_0.gguf").write_bytes(base.read_bytes())
    done = leap("models", "merge", "Mine-Q8_0.gguf", "--lora", "style.gguf")
    assert done.code == 0 and Path(done.stdout.strip()).parent.name == "Mine-F16", done
    both = leap("models", "merge", "Mine-Q8_0.gguf", "--lora", "style.gguf", "--name", "X", "-o", "x.gguf")
    assert both.code == 2 and "give one of them" in both.stderr


@pytest.mark.slow
def test_a_cancelled_merge_leaves_nothing(pairs, tmp_path):
    base, directory = pairs["lfm2"]
    convert_adapter(directory, base, tmp_path / "style.gguf")
    stop = threading.Event()
    with pytest.raises(Stopped):
        making = Making(lambda *step: stop.set(), stop)
        merge(base, [(tmp_path / "style.gguf", 1.0)], tmp_path / "merged.gguf", making)
    assert [path.name for path in tmp_path.glob("*merged*")] == [] and not list(tmp_path.glob(".*unfinished"))
