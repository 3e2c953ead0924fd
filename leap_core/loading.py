"""From the files of a model to a runner in this process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .options import ModelLoadingOptions
from .runner.contract import ModelRunner
from .runner.embedding import EmbeddingRunner

if TYPE_CHECKING:
    from .models.references.resolving import LocalModel


def load_local(model: LocalModel, options: ModelLoadingOptions) -> ModelRunner:
    """Load files that were found; a GGUF that is new here is tried in a child process before. While the model is
    loaded, ``leap models remove`` leaves its files alone.

    A vocoder beside the model that belongs to a generation which this version cannot speak with leaves the model mute;
    one that the options name is an error. Raises LeapModelLoadingError."""
    from .in_process.early_opening import EarlyOpening
    from .models.store import hold

    try_local(model, options)
    if not options.adapters:
        options = replace(options, adapters=model.adapters)
    if options.chat_template is None and model.chat_template is not None:
        options = replace(options, chat_template=model.chat_template)
    if options.cpu_threads is None and model.threads is not None:
        options = replace(options, cpu_threads=model.threads)
    options, mute = _with_voice(model, options)
    projector = options.mm_proj_path or model.mm_proj_path
    if projector is not None:
        options = replace(options, mm_proj_path=projector)
    held = hold(model.path)
    opening = EarlyOpening(model.path, options)
    try:
        from .in_process.runner import InProcessRunner

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
    from .models.trial.subject import AUDIO_DECODER, AUDIO_TOKENIZER, MODEL, PROJECTOR, Subject
    from .models.trial.trying import require_sound

    replaced = options.chat_template or model.chat_template
    require_sound(Subject(model.path), own_template=replaced is not None)
    projector = options.mm_proj_path or model.mm_proj_path
    if projector is not None:
        require_sound(Subject(projector, PROJECTOR, {MODEL: model.path}))
    options, _ = _with_voice(model, options)
    decoder, tokenizer = options.audio_decoder_path, options.audio_tokenizer_path
    if decoder is not None:
        from .speech.companions import check_generation, tokenizer_beside

        check_generation(decoder, tokenizer)
        tokenizer = tokenizer or tokenizer_beside(decoder)
        beside = {MODEL: model.path} | ({AUDIO_TOKENIZER: tokenizer} if tokenizer is not None else {})
        require_sound(Subject(decoder, AUDIO_DECODER, beside))
    if adapters := options.adapters or model.adapters:
        from .in_process.adapters import require_sound_adapter

        for adapter in adapters:
            require_sound_adapter(adapter.path, model.path)


def load_local_for_embedding(model: LocalModel, options: ModelLoadingOptions) -> EmbeddingRunner:
    """Load files that were found, to make vectors. Like ``load_local``."""
    from .in_process.embedding_runner import InProcessEmbeddingRunner
    from .models.store import hold
    from .models.trial.subject import Subject
    from .models.trial.trying import require_sound

    require_sound(Subject(model.path), own_template=True)
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


def _with_voice(model: LocalModel, options: ModelLoadingOptions) -> tuple[ModelLoadingOptions, str | None]:
    """The options with the vocoder that lies beside the model, or the reason why that one is left alone."""
    if options.audio_decoder_path is not None or model.audio_decoder_path is None:
        return options, None
    from .speech.companions import OtherGenerationError, check_generation

    tokenizer = options.audio_tokenizer_path or model.audio_tokenizer_path
    try:
        check_generation(model.audio_decoder_path, tokenizer)
    except OtherGenerationError as error:
        return replace(options, audio_tokenizer_path=None), error.message
    return replace(options, audio_decoder_path=model.audio_decoder_path, audio_tokenizer_path=tokenizer), None
