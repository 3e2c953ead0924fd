"""From the files of a model to a runner in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import ModelLoadingOptions
from .runner.contract import ModelRunner
from .runner.embedding import EmbeddingRunner

if TYPE_CHECKING:
    from .models.references.resolving import LocalModel


def load_local(
    model: LocalModel, options: ModelLoadingOptions, variables: Mapping[str, str] | None = None
) -> ModelRunner:
    """Load files that were found; a GGUF that is new here is tried in a child process before. While the model is
    loaded, ``leap models remove`` leaves its files alone. ``variables``: the environment, by default this process's.

    A vocoder beside the model that belongs to a generation which this version cannot speak with leaves the model mute;
    one that the options name is an error. Raises LeapModelLoadingError."""
    from .in_process.model_parts import EarlyOpening
    from .models.installed.holding import hold

    options, mute = _completed(model, options)
    _require_sound(model.path, options, variables)
    held = hold(model.path)
    opening = EarlyOpening(model.path, options)
    try:
        from .in_process.in_process_runner import InProcessRunner

        return InProcessRunner(
            model.path,
            model.model_id,
            options,
            defaults=model.sampling,
            parser_name=model.parser_name,
            hold=held,
            mute=mute,
            opening=opening,
        )
    except BaseException:
        opening.close()
        held.close()
        raise


def try_local(model: LocalModel, options: ModelLoadingOptions) -> None:
    """Make sure that llama.cpp survives the files, those that are new here by a trial in a child process.

    Raises LeapModelLoadingError.
    """
    _require_sound(model.path, _completed(model, options)[0], None)


def _completed(model: LocalModel, options: ModelLoadingOptions) -> tuple[ModelLoadingOptions, str | None]:
    """The options with what the model brings where they leave it open, and why its own vocoder is left alone."""
    own: dict[str, Any] = {
        "adapters": model.adapters,
        "chat_template": model.chat_template,
        "cpu_threads": model.threads,
        "mm_proj_path": model.mm_proj_path,
    }
    options = replace(options, **{name: value for name, value in own.items() if getattr(options, name) in (None, ())})
    decoder = model.audio_decoder_path
    if options.audio_decoder_path is not None or decoder is None:
        return options, None
    from .speech.companions import OtherGenerationError, check_generation

    tokenizer = options.audio_tokenizer_path or model.audio_tokenizer_path
    try:
        check_generation(decoder, tokenizer)
    except OtherGenerationError as error:
        return replace(options, audio_tokenizer_path=None), error.message
    return replace(options, audio_decoder_path=decoder, audio_tokenizer_path=tokenizer), None


def _require_sound(path: Path, options: ModelLoadingOptions, variables: Mapping[str, str] | None) -> None:
    from .load_check.subject import AUDIO_DECODER, AUDIO_TOKENIZER, MODEL, PROJECTOR, Subject
    from .load_check.trying import require_sound

    require_sound(Subject(path), own_template=options.chat_template is not None, variables=variables)
    if options.mm_proj_path is not None:
        require_sound(Subject(options.mm_proj_path, PROJECTOR, {MODEL: path}), variables=variables)
    decoder, tokenizer = options.audio_decoder_path, options.audio_tokenizer_path
    if decoder is not None:
        from .speech.companions import check_generation, tokenizer_beside

        check_generation(decoder, tokenizer)
        tokenizer = tokenizer or tokenizer_beside(decoder)
        beside = {MODEL: path} | ({AUDIO_TOKENIZER: tokenizer} if tokenizer is not None else {})
        require_sound(Subject(decoder, AUDIO_DECODER, beside), variables=variables)
    if options.adapters:
        from .in_process.model_adapters import require_sound_adapter

        for adapter in options.adapters:
            require_sound_adapter(adapter.path, path)


def load_local_for_embedding(
    model: LocalModel, options: ModelLoadingOptions, variables: Mapping[str, str] | None = None
) -> EmbeddingRunner:
    """Load files that were found, to make vectors. Like ``load_local``."""
    from .in_process.vectors.in_process_embedding_runner import InProcessEmbeddingRunner
    from .load_check.subject import Subject
    from .load_check.trying import require_sound
    from .models.installed.holding import hold

    require_sound(Subject(model.path), own_template=True, variables=variables)
    held = hold(model.path)
    try:
        return InProcessEmbeddingRunner(model.path, model.model_id, options, hold=held)
    except BaseException:
        held.close()
        raise


def load_as_made(model: LocalModel, options: ModelLoadingOptions) -> ModelRunner | EmbeddingRunner:
    """Load files that were found for what the model was made for: to write, or to make vectors."""
    from .models.gguf.header import read_gguf_header

    if read_gguf_header(model.path).pooling is None:
        return load_local(model, options)
    return load_local_for_embedding(model, options)
