"""A Hugging Face checkpoint -> GGUF, tensor by tensor, kept as a model of the store or a file."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...conversation.options import SamplingDefaults
from ...errors import LeapError, LeapModelLoadingError
from ...inference.gguf.file_names import PROJECTOR, directory_name
from ...inference.gguf.quantize_request import QuantizeRequest, mixture
from ...inference.trial.trial_child import Subject
from ...inference.trial.verdicts import error_of, verdict_on
from ...system.files import hash_file
from ..manifest import INFERENCE_TYPES, SAMPLING_KEYS, Manifest, write_manifest
from ..store import Store
from . import bert
from .checkpoint import BERT, LLAMA, MOE, Family, read_checkpoint, read_family, read_json
from .conversion_child import Stopped
from .quantizing import (
    Making,
    Quantized,
    check_target,
    making_directory,
    quantize_to_file,
    require_space,
    settle,
)
from .tensor_plan import PlannedTensor, plan_projector, plan_text, total, type_of, write_projector_settings
from .vocabulary import CONTROL, NORMAL, UNUSED, check_special, read_vocabulary

FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}
LARGEST_CARD = 1024**2
DEEPEST_CARD = 20
POOLING = {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3}
POOLING_MODES = {"mean": 1, "cls": 2, "lasttoken": 3}
UNDERSTOOD = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    RecursionError,
    OverflowError,
    AssertionError,
    struct.error,
)


def convert_text(directory: Path, target: Path, to: str, making: Making) -> None:
    """Write the text model of a checkpoint. ``to``: F32, F16, BF16 or Q8_0. Raises LeapModelLoadingError for what is
    damaged or of another family, LeapError for a full disk, and Stopped."""
    family = read_family(directory)
    with understanding(directory):
        stored = dict(read_checkpoint(directory))
        extra = _dense(family, to)
        planned = [*extra, *plan_text(family, stored, to)]
        writer = _writer(target, family.architecture)
        for tensor in planned:
            _announce(writer, tensor)
        writer.add_type("model")
        _write_card(writer, family)
        _write_settings(writer, family, extra, to)
        _write_vocabulary(writer, family)
        _write_content(writer, target, planned, making)


def convert_projector(directory: Path, target: Path, to: str, making: Making) -> None:
    """Write the projector of a checkpoint that sees."""
    family = read_family(directory)
    with understanding(directory):
        planned = plan_projector(family, read_checkpoint(directory), to)
        writer = _writer(target, "clip")
        for tensor in planned:
            _announce(writer, tensor)
        writer.add_type("mmproj")
        _write_card(writer, family)
        writer.add_file_type(FILE_TYPES[to])
        write_projector_settings(writer, family)
        _write_content(writer, target, planned, making)


class understanding:
    """What a checkpoint's files say may be of any type: within the block an error over it is one about the file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UNDERSTOOD) and not isinstance(error, LeapError):
            reason = f"{type(error).__name__}: {str(error)[:120]}".replace("\n", " ")
            raise LeapModelLoadingError(f"the checkpoint {self.directory} cannot be understood ({reason})") from None
        if isinstance(error, OSError):
            raise LeapModelLoadingError(f"cannot convert {self.directory}: {error.strerror or error}") from None


def _writer(target: Path, architecture: str) -> Any:
    from gguf import GGUFWriter

    return GGUFWriter(target, architecture)


def _announce(writer: Any, tensor: PlannedTensor) -> None:
    import numpy as np
    from gguf import GGMLQuantizationType

    kinds: dict[str, Any] = {"F32": np.float32, "F16": np.float16}
    # gguf counts the bytes of what it is handed: for the other types those are bytes
    dtype = np.dtype(kinds.get(tensor.type, np.uint8))
    raw = None if tensor.type in kinds else GGMLQuantizationType[tensor.type]
    width = {"BF16": tensor.shape[-1] * 2, "Q8_0": tensor.shape[-1] // 32 * 34}.get(tensor.type, tensor.shape[-1])
    writer.add_tensor_info(tensor.name, (*tensor.shape[:-1], width), dtype, tensor.size, raw)


def _write_card(writer: Any, family: Family) -> None:
    """Name, license and sampling, as far as the directory has them."""
    from gguf import Metadata, size_label

    total_count, shared, expert, experts = writer.get_total_parameter_count()
    card = family.directory / "README.md"
    sound = not card.exists() or (card.is_file() and card.stat().st_size <= LARGEST_CARD)
    if not sound:
        raise LeapModelLoadingError(f"{card} is no model card")
    _check_front_matter(card)
    metadata = Metadata.load(None, family.directory, None, total_count)
    metadata.name = metadata.name or family.directory.name
    if metadata.size_label is None and total_count > 0:
        metadata.size_label = size_label(total_count, shared, expert, experts)
    generation = family.directory / "generation_config.json"
    if generation.exists() and metadata.sampling_penalty_repeat is None:
        metadata.sampling_penalty_repeat = read_json(generation).get("repetition_penalty")
    metadata.set_gguf_meta_model(writer)
    writer.add_quantization_version(2)


def _check_front_matter(card: Path) -> None:
    """Raises LeapModelLoadingError for a model card whose YAML is malformed, or grows by aliases or depth."""
    import yaml  # which gguf reads it with

    if not card.exists():
        return
    depth = 0
    try:
        first, *lines = card.read_text("utf-8").splitlines() or [""]
        if first != "---":
            return
        text = "\n".join(lines[: lines.index("---")] if "---" in lines else lines).replace("\t", "  ")
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > DEEPEST_CARD:
                raise ValueError("aliases and deep nesting are not read")
        yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        reason = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise LeapModelLoadingError(
            f"the front matter of {card} cannot be read: {reason}",
            hint="mend or remove it: it only describes the model",
        ) from None


def _write_settings(writer: Any, family: Family, extra: Sequence[PlannedTensor], to: str) -> None:
    """The keys by which llama.cpp builds the network."""
    if family.architecture == BERT:
        bert.write_settings(writer, family)
        _write_pooling(writer, family, extra, default=bert.MEAN)
        writer.add_file_type(FILE_TYPES[to])
        return
    settings, lfm2 = family.settings, family.architecture != LLAMA
    writer.add_block_count(family.blocks)
    if settings.get("max_position_embeddings") is not None:
        writer.add_context_length(family.number("max_position_embeddings"))
    writer.add_embedding_length(family.number("hidden_size"))
    _write_heads(writer, family)
    if settings.get("is_causal") is False or family.hf_name == "Lfm2BidirectionalModel":
        writer.add_causal_attention(False)
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    base = rope.get("rope_theta", settings.get("rope_theta"))
    if base is not None:
        writer.add_rope_freq_base(float(base))
    writer.add_layer_norm_rms_eps(family.real("norm_eps") if lfm2 else family.real("rms_norm_eps"))
    writer.add_feed_forward_length(_feed_forward(family))
    writer.add_vocab_size(family.number("vocab_size"))
    if settings.get("head_dim") is not None or not lfm2:
        heads = family.number("num_attention_heads")
        width = family.number("head_dim") if settings.get("head_dim") else family.number("hidden_size") // heads
        writer.add_key_length(width)
        writer.add_value_length(width)
    if lfm2:
        writer.add_shortconv_l_cache(family.number("conv_L_cache"))
    else:
        writer.add_rope_dimension_count(width)
    if family.architecture == MOE:
        writer.add_expert_count(family.number("num_experts"))
        writer.add_expert_used_count(family.number("num_experts_per_tok"))
        writer.add_expert_feed_forward_length(family.number("moe_intermediate_size"))
        writer.add_leading_dense_block_count(int(settings["num_dense_layers"]))
        writer.add_uint32(f"{family.architecture}.expert_gating_func", 2)
    if family.is_bare:
        _write_pooling(writer, family, extra)
    writer.add_file_type(FILE_TYPES[to])


def _write_heads(writer: Any, family: Family) -> None:
    """Heads of attention, and of their keys and values in each layer."""
    settings, heads = family.settings, family.number("num_attention_heads")
    writer.add_head_count(heads)
    groups = family.number("num_key_value_heads") if settings.get("num_key_value_heads") is not None else heads
    if family.architecture != LLAMA:
        layers = settings["layer_types"]
        if not isinstance(layers, list) or len(layers) != family.blocks:
            raise family.unclear("layer_types", str(layers))
        attends = [kind == "full_attention" if family.architecture == MOE else kind != "conv" for kind in layers]
        writer.add_head_count_kv([groups if each else 0 for each in attends])
    elif settings.get("num_key_value_heads") is not None:
        writer.add_head_count_kv(groups)


def _feed_forward(family: Family) -> int:
    """Its width; LFM2's config may mean a width to be adjusted."""
    settings = family.settings
    if family.architecture != "lfm2":
        return family.number("intermediate_size")
    width = family.number("block_ff_dim") if "block_ff_dim" in settings else family.number("intermediate_size")
    if settings.get("block_auto_adjust_ff_dim"):
        width = int(2 * width / 3)
        if settings.get("block_ffn_dim_multiplier") is not None:
            width = int(family.real("block_ffn_dim_multiplier") * width)
        multiple = family.number("block_multiple_of")
        width = multiple * ((width + multiple - 1) // multiple)
    return width


def _write_pooling(writer: Any, family: Family, extra: Sequence[PlannedTensor], default: int | None = None) -> None:
    """How an embedding model makes one vector of many, from the files of sentence-transformers."""
    if extra:
        writer.add_embedding_length_out(extra[0].shape[0])
    modules = family.directory / "modules.json"
    if not modules.is_file():
        if default is not None:
            writer.add_uint32(f"{family.architecture}.pooling_type", default)
        return
    for module in json.loads(modules.read_bytes()):
        if not str(module["type"]).endswith("Pooling"):
            continue
        if Path(module["path"]).name != module["path"]:
            raise LeapModelLoadingError(f"{modules} names a path that leaves the directory")
        pooling = read_json(family.directory / module["path"] / "config.json")
        kinds = [number for key, number in POOLING.items() if pooling.get(key)]
        kind = kinds[0] if kinds else POOLING_MODES.get(str(pooling.get("pooling_mode")))
        if kind is None:
            raise family.refused(f"{family.directory} pools in another way than mean, cls or last token")
        writer.add_uint32(f"{family.architecture}.pooling_type", kind)
        return


def _dense(family: Family, to: str) -> list[PlannedTensor]:
    """ColBERT's projection, in a file of its own."""
    if not family.is_bare or not (family.directory / "1_Dense" / "model.safetensors").exists():
        return []
    tensor = read_checkpoint(family.directory / "1_Dense").get("linear.weight")
    if tensor is None or len(tensor.shape) != 2 or 0 in tensor.shape:
        raise LeapModelLoadingError(f"{family.directory / '1_Dense'} has no linear.weight")
    return [PlannedTensor("dense_2.weight", tensor.shape, type_of("dense_2.weight", tensor.shape, to), (tensor,))]


def _write_vocabulary(writer: Any, family: Family) -> None:
    from gguf import SpecialVocab

    if family.architecture == BERT:
        bert.write_vocabulary(writer, family, {"normal": NORMAL, "control": CONTROL, "unused": UNUSED})
        return
    vocabulary = read_vocabulary(family)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    special = SpecialVocab(family.directory, load_merges=True)
    if not special.merges:
        raise LeapModelLoadingError(f"{family.directory / 'tokenizer.json'} has no merges")
    check_special(family, vocabulary, special.special_token_ids)
    if family.architecture == LLAMA and family.settings.get("vocab_size") == 49152:
        special.add_special_token["bos"] = False  # granite and SmolLM, as llama.cpp's converter has it
    special.add_to_gguf(writer, quiet=True)


def _write_content(writer: Any, target: Path, planned: Sequence[PlannedTensor], making: Making) -> None:
    """Header, then every tensor piece by piece."""
    require_space(target.parent, total(planned) + 64 * 1024**2)
    try:
        writer.write_header_to_file(path=target)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        file = writer.fout[0]
        for number, tensor in enumerate(planned):
            making.on_tensor(number + 1, len(planned), tensor.name)
            if making.stop is not None and making.stop.is_set():
                raise Stopped("stopped")
            writer.write_padding(file, file.tell())
            begin = file.tell()
            for piece in tensor.pieces():
                piece.tofile(file)
            if file.tell() - begin != tensor.size:
                raise LeapModelLoadingError(f"{tensor.name} became {file.tell() - begin} bytes, not {tensor.size}")
            writer.write_padding(file, tensor.size)
    finally:
        with suppress(OSError):
            writer.close()


def convert_into_store(
    directory: Path, name: str | None, to: str, store: Store, making: Making, *, replace: bool = False
) -> Quantized:
    """Make ``name`` in the type ``to`` of a checkpoint, its projector included. Raises LeapModelLoadingError for what
    cannot be converted or does not run, LeapError where such a model is, and Stopped; then nothing is left."""
    kind = mixture(to)
    family = read_family(directory)
    name = name or directory.resolve().name
    home = store.root / directory_name(name, kind)
    if store.at(home) is not None and not replace:
        raise LeapError(f"there is a model {home.name} already", hint="choose another with --name, or use --replace")
    with making_directory(store, home, f"convert {home.name}") as unfinished:
        model = unfinished / f"{home.name}.gguf"
        convert_to_file(directory, model, kind, making)
        files = {"model": model.name}
        if family.sees:
            files[PROJECTOR] = f"mmproj-{home.name}.gguf"
            convert_projector(directory, unfinished / files[PROJECTOR], kind if kind in FILE_TYPES else "F16", making)
        require_running(model, making)
        settle(unfinished, home)
        _record(home, name, kind, directory, files)
    before = sum(path.stat().st_size for path in directory.rglob("*.safetensors"))
    return Quantized(
        home / files["model"], home.name, before, sum((home / each).stat().st_size for each in files.values())
    )


def convert_to_files(directory: Path, target: Path, to: str, making: Making, *, replace: bool = False) -> list[Path]:
    """Write a checkpoint as a file and, of one that sees, its projector beside it; their paths. Raises
    LeapOptionsError for files that are there already, and what ``convert_to_file`` raises; then nothing is left."""
    projector = target.with_name(f"mmproj-{target.name}") if read_family(directory).sees else None
    for path in filter(None, (target, projector)):
        check_target(path, directory.iterdir(), replace=replace)
    if projector is None:
        convert_to_file(directory, target, to, making)
        return [target]
    kind = mixture(to)
    unfinished = projector.with_name(f".{projector.name}.unfinished")
    try:
        convert_projector(directory, unfinished, kind if kind in FILE_TYPES else "F16", making)
        convert_to_file(directory, target, to, making)
        unfinished.replace(projector)
    finally:
        unfinished.unlink(missing_ok=True)
    return [target, projector]


def convert_to_file(directory: Path, target: Path, to: str, making: Making) -> None:
    """Write the text model of a checkpoint as ``to``: what is no direct type is quantized from the stored one."""
    kind = mixture(to)
    if kind in FILE_TYPES:
        _whole(directory, target, kind, making)
        return
    between = target.with_name(f".{target.name}.whole")
    try:
        _whole(directory, between, "BF16", making)
        quantize_to_file(between, target, QuantizeRequest(kind), making)
    finally:
        between.unlink(missing_ok=True)


def _whole(directory: Path, target: Path, kind: str, making: Making) -> None:
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        convert_text(directory, unfinished, kind, making)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def require_running(model: Path, making: Making) -> None:
    """Raises LeapModelLoadingError for a file that llama.cpp refuses, or does not survive."""
    verdict = verdict_on(Subject(model), variables=making.variables, stop=making.stop)
    if verdict is not None and not verdict.is_sound:
        error = error_of(Subject(model), verdict)
        raise LeapModelLoadingError(f"what became of the checkpoint does not run: {error.message}")


def _record(home: Path, name: str, kind: str, directory: Path, files: dict[str, str]) -> None:
    origin = directory.absolute().as_uri()
    records = {
        file: {"size": (home / file).stat().st_size, "sha256": hash_file(home / file), "url": origin}
        for file in files.values()
    }
    manifest = Manifest(files["model"], sampling=_sampling(directory)).with_files(files)
    manifest = manifest.with_record(
        {"model": name, "quantization": kind, "source": origin, "origin": origin, "files": records},
        inference_type=INFERENCE_TYPES["vision" if PROJECTOR in files else "text"],
        path_on_disk=str(home / files["model"]),
    )
    write_manifest(manifest, home / f"{home.name}.json")


def _sampling(directory: Path) -> SamplingDefaults:
    """What generation_config.json recommends, as far as it makes sense."""
    sampling = SamplingDefaults()
    with suppress(OSError, ValueError, RecursionError):
        value = json.loads((directory / "generation_config.json").read_bytes())
        for key in SAMPLING_KEYS:
            if isinstance(value, dict) and isinstance(value.get(key), (int, float)):
                with suppress(LeapError):
                    sampling = replace(sampling, **{key: value[key]})
    return sampling
