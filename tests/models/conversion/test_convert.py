"""``leap models convert``: what becomes of a checkpoint of each family."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from leap_core.errors import LeapModelLoadingError
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.models.builtin import model_path
from leap_core.models.conversion.converting import convert_text
from leap_core.models.conversion.quantizing import Making
from leap_core.models.resolving import resolve_local

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
import checkpoints  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    """A checkpoint of each family."""
    top = tmp_path_factory.mktemp("checkpoints")
    source = model_path("builtin")
    return {
        name: checkpoints.write_checkpoint(top / name, name, source, shards=3 if name == "lfm2" else 1)
        for name in checkpoints.FAMILIES
    }


@pytest.mark.slow
@pytest.mark.parametrize("family", checkpoints.FAMILIES)
def test_llama_cpp_runs_a_checkpoint_of_each_family(made, family, leap, leap_home):
    variables = {"LEAP_TRY_MODELS": "1"}
    leap.variables |= variables
    done = leap("models", "convert", str(made[family]), "--to", "q8_0", "--name", "Mine")
    assert done.code == 0, done
    local = resolve_local("Mine:Q8_0")
    assert (local.mm_proj_path is not None) == (family == "vl")
    assert local.sampling.temperature == 0.3 and local.sampling.repetition_penalty == 1.05


def test_weights_and_settings_are_the_checkpoints(made, tmp_path):
    convert_text(made["lfm2"], tmp_path / "f32.gguf", "F32", Making())
    header = read_gguf_header(tmp_path / "f32.gguf")
    weights = checkpoints.tensors_of("lfm2", 2048, 7)
    tensor = next(each for each in header.tensors if each.name == "blk.2.attn_q.weight")
    content = np.fromfile(tmp_path / "f32.gguf", np.float32, tensor.elements, offset=tensor.offset)
    wanted = weights["model.layers.2.self_attn.q_proj.weight"].ravel()
    assert np.abs(content - wanted).max() <= 2.0**-8 * np.abs(wanted).max()
    assert header.metadata["lfm2.attention.head_count_kv"] == [0, 0, 2, 0]
    assert header.metadata["lfm2.feed_forward_length"] == checkpoints.INNER
    assert header.chat_template and header.tokenizer_pre == "lfm2"


@pytest.mark.slow
def test_other_types_are_quantized_afterwards(made, leap):
    done = leap("models", "convert", str(made["lfm2"]), "--to", "Q4_0", "-o", "mine.gguf")
    assert done.code == 0, done
    assert read_gguf_header(Path(done.stdout.strip())).quantization == "Q4_0"
    both = leap("models", "convert", str(made["lfm2"]), "-o", "Mine", "--name", "Yours")
    assert both.code == 2 and "-o NAME is the same as --name" in both.stderr


def test_a_file_has_its_projector_beside_it(made, leap, tmp_path):
    done = leap("models", "convert", str(made["vl"]), "--to", "F16", "-o", "eyes.gguf")
    assert done.code == 0, done
    model, projector = map(Path, done.stdout.splitlines())
    assert (model, projector) == (tmp_path / "eyes.gguf", tmp_path / "mmproj-eyes.gguf")
    assert read_gguf_header(projector).is_projector and not read_gguf_header(model).is_projector
    assert sorted(tmp_path.glob(".*unfinished")) == []


@pytest.mark.parametrize("there", ["eyes.gguf", "mmproj-eyes.gguf"])
def test_files_are_replaced_only_when_that_is_asked_for(made, leap, tmp_path, there):
    (tmp_path / there).write_bytes(b"mine")
    done = leap("models", "convert", str(made["vl"]), "--to", "F16", "-o", "eyes.gguf")
    assert done.code == 2 and f"{there} exists; --replace takes its place" in done.stderr
    assert (tmp_path / there).read_bytes() == b"mine"
    assert leap("models", "convert", str(made["vl"]), "--to", "F16", "-o", "eyes.gguf", "--replace").code == 0


def test_a_result_has_a_directory_and_is_no_file_of_its_checkpoint(made, leap):
    weights = made["llama"] / "model.safetensors"
    content = weights.read_bytes()
    done = leap("models", "convert", str(made["llama"]), "-o", str(weights), "--replace")
    assert done.code == 2 and "is what the result is made from" in done.stderr and weights.read_bytes() == content
    done = leap("models", "convert", str(made["llama"]), "-o", "nowhere/x.gguf")
    assert done.code == 2 and "there is no directory" in done.stderr


def test_a_checkpoint_is_told_from_a_model(made, leap):
    done = leap("models", "import", str(made["lfm2"]))
    assert done.code != 0 and "is a checkpoint" in done.stderr and "leap models convert" in done.stderr
    with pytest.raises(LeapModelLoadingError, match="is a checkpoint"):
        resolve_local(str(made["lfm2"]))


def test_another_architecture_is_named_with_the_converter_that_does_it(made, tmp_path):
    other = shutil.copytree(made["llama"], tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"architectures": ["MambaForCausalLM"]}))
    with pytest.raises(LeapModelLoadingError, match="is a MambaForCausalLM") as caught:
        convert_text(other, tmp_path / "x.gguf", "F16", Making())
    assert "convert_hf_to_gguf.py" in caught.value.hint


def test_a_directory_that_is_not_there_is_named(leap):
    done = leap("models", "convert", "nosuch")
    assert done.code == 3 and done.stderr.count("\n") == 1
    assert "there is no directory" in done.stderr and "config.json and *.safetensors" in done.stderr


def test_texts_become_the_same_tokens(made, tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="the tokenizer of a checkpoint's own library")
    from leap_core.inference.llama.model import LlamaModel

    convert_text(made["lfm2"], tmp_path / "m.gguf", "BF16", Making())
    model = LlamaModel(tmp_path / "m.gguf")
    tokenizer = tokenizers.Tokenizer.from_file(str(made["lfm2"] / "tokenizer.json"))
    random = np.random.default_rng(3)
    alphabet = list("abcdefghijklmnopqrstuvwxyz     ETAOIN.,:;!?'\n\t0123456789-_(){}[]äöüßéñ你好世界ПриветKö🙂")
    texts = ["".join(random.choice(alphabet, random.integers(1, 80))) for _ in range(2000)]
    for text in texts:
        assert model.tokenize(text, parse_special=False) == tokenizer.encode(text, add_special_tokens=False).ids, text
    model.close()


CARDS = {
    "aliases": "a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]",
    "not YAML": "license: [apache\nname: x",
    "a date that is none": "date: 2026-99-99",
    "nested": "[" * 5000 + "]" * 5000,
}


@pytest.mark.parametrize("card", CARDS)
def test_a_model_card_that_is_malformed_or_grows_is_refused_in_one_line(made, leap, tmp_path, card):
    checkpoint = shutil.copytree(made["llama"], tmp_path / "checkpoint")
    (checkpoint / "README.md").write_text(f"---\n{CARDS[card]}\n---\n# A model\n")
    done = leap("models", "convert", str(checkpoint), "-o", str(tmp_path / "made.gguf"))
    assert done.code == 3 and "front matter" in done.stderr and done.stderr.count("\n") == 1, done
    assert not (tmp_path / "made.gguf").exists()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(made, leap, tmp_path, value):
    checkpoint = shutil.copytree(made["llama"], tmp_path / "checkpoint")
    file = checkpoint / "model.safetensors"
    data = bytearray(file.read_bytes())
    length = int.from_bytes(data[:8], "little")
    name, entry = next(
        (name, entry) for name, entry in json.loads(data[8 : 8 + length]).items() if name != "__metadata__"
    )
    kind = {"F32": np.float32, "F16": np.float16}.get(entry["dtype"])
    number = np.array([value], np.float32)
    stored = number.astype(kind).tobytes() if kind else (number.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    start = 8 + length + entry["data_offsets"][0]
    data[start : start + len(stored)] = stored
    file.write_bytes(data)
    done = leap("models", "convert", str(checkpoint), "-o", str(tmp_path / "made.gguf"))
    assert done.code == 3 and f"{name} has values that are not finite" in done.stderr, done
    assert not (tmp_path / "made.gguf").exists()
