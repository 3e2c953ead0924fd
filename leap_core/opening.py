"""From a reference to a runner: the warm host's where it holds the model, else one of this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from .conversation.embedding import EmbeddingRunner
from .conversation.loading_options import LOADING
from .conversation.options import ModelLoadingOptions, SamplingDefaults
from .conversation.runner import ModelRunner
from .errors import LeapError, LeapModelLoadingError, LeapOptionsError, LeapUnavailableError
from .system.dataclass import dataclass
from .system.directories import Directories

if TYPE_CHECKING:
    from .models.aliases_and_endpoints import Endpoint
    from .models.download.downloading import DownloadOptions, Event
    from .models.resolving import LocalModel
    from .protocols.endpoint.retries import Patience
    from .system.plugins import Plugin

Value = TypeVar("Value")


class HostUse(str, Enum):
    """Whether a model that ``leap load`` keeps warm may answer."""

    USE = "use"
    """Where the host holds the model as the options say; else it is loaded into this process."""
    DEMAND = "demand"
    """Only the host may answer."""
    NEVER = "never"
    """The model is loaded into this process."""


def open_runner(
    reference: str,
    options: ModelLoadingOptions | None = None,
    *,
    host: HostUse | str = HostUse.USE,
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    directories: Directories | None = None,
    on_warning: Callable[[str], object] | None = None,
    load: Callable[[str, ModelLoadingOptions], ModelRunner] | None = None,
) -> ModelRunner:
    """The runner of a model that is on this machine, or at an endpoint.

    ``variables``: the environment that says where models and the host are, by default this process's; ``directories``
    are those that it names. ``cwd``: where a relative path begins. ``on_warning`` gets a sentence when there is a host
    that cannot be used. ``load`` loads the model here in another way. Raises what ``Leap.load`` raises, and
    LeapUnavailableError when the host is demanded and cannot answer.
    """
    place = _Place.of(host, variables, cwd, directories, on_warning)
    runner: ModelRunner = place.open(reference, options, load or place.loading(load_local))
    return runner


def open_embedding_runner(
    reference: str,
    options: ModelLoadingOptions | None = None,
    *,
    host: HostUse | str = HostUse.USE,
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    on_warning: Callable[[str], object] | None = None,
    load: Callable[[str, ModelLoadingOptions], EmbeddingRunner] | None = None,
) -> EmbeddingRunner:
    """``open_runner`` for a model that makes vectors. ``options.context_size`` is the most tokens of a text."""
    place = _Place.of(host, variables, cwd, None, on_warning)
    load = load or place.loading(load_local_for_embedding)
    runner: EmbeddingRunner = place.open(reference, options, load, embeds=True)
    return runner


class _Place(NamedTuple):
    """Where a reference is looked up, and whether the warm host may answer; see ``open_runner``."""

    host: HostUse
    variables: Mapping[str, str]
    cwd: Path | None
    directories: Directories
    on_warning: Callable[[str], object] | None

    @staticmethod
    def of(
        host: HostUse | str,
        variables: Mapping[str, str] | None,
        cwd: Path | None,
        directories: Directories | None,
        on_warning: Callable[[str], object] | None,
    ) -> _Place:
        variables = os.environ if variables is None else variables
        return _Place(HostUse(host), variables, cwd, directories or Directories.from_environment(variables), on_warning)

    def loading(self, load: Callable[..., Value]) -> Callable[[str, ModelLoadingOptions], Value]:
        """``load`` for a reference to files on this machine."""

        def load_found(reference: str, options: ModelLoadingOptions) -> Value:
            from .models.resolving import resolve_local

            local = resolve_local(reference, variables=self.variables, cwd=self.cwd)
            if local.note is not None and self.on_warning is not None:
                self.on_warning(f"{local.model_id}: {local.note}")
            return load(local, options, self.variables)

        return load_found

    def open(
        self,
        reference: str,
        options: ModelLoadingOptions | None,
        load: Callable[[str, ModelLoadingOptions], Any],
        *,
        embeds: bool = False,
    ) -> Any:
        """The runner at an endpoint, else of the warm host, else what ``load`` returns."""
        if options is not None and not isinstance(options, ModelLoadingOptions):
            raise LeapOptionsError("options", f"ModelLoadingOptions are needed, not {type(options).__name__}")
        options = options or ModelLoadingOptions()
        from .models.aliases_and_endpoints import find_endpoint

        endpoint = find_endpoint(reference, self.directories)
        if endpoint is not None:
            self._check_endpoint(endpoint, options)
            if embeds:
                from .protocols.endpoint.remote_embeddings import open_endpoint_for_embedding

                return open_endpoint_for_embedding(endpoint, self.variables)
            from .protocols.endpoint.endpoint_runner import open_endpoint

            return open_endpoint(endpoint, self.variables)
        return self._warm(reference, options, embeds) or load(reference, options)

    def _check_endpoint(self, endpoint: Endpoint, options: ModelLoadingOptions) -> None:
        """A remote model is loaded already: what the options ask of its loading has no effect, which is said. Raises
        LeapUnavailableError where a host is demanded."""
        if self.host is HostUse.DEMAND:
            raise LeapUnavailableError(f"{endpoint.label} is an endpoint: no model host on this machine holds it")
        own = {"slots", "cache_options", "n_gpu_layers"}
        without_effect = ", ".join(name for name in options.changed() if name not in own)
        if without_effect and self.on_warning is not None:
            self.on_warning(f"{endpoint.label} is already loaded by another process: {without_effect} has no effect")

    def _warm(self, reference: str, options: ModelLoadingOptions, embeds: bool) -> Any:
        """The host's runner, None where it is not used. Raises LeapUnavailableError when it is demanded and cannot
        be."""
        if self.host is HostUse.NEVER:
            return None
        demanded = self.host is HostUse.DEMAND
        unknown = [name for name, row in options.changed().items() if row.host is None]
        if demanded and unknown:
            raise LeapUnavailableError(
                f"the model host cannot load a model with {', '.join(unknown)}",
                hint="load the model into this process (--no-host)",
            )
        from .protocols.host.host_state import HostFiles

        if unknown or not (demanded or HostFiles.of(self.directories).state.exists()):
            return None
        from .protocols.host.lookup import warm_runner

        try:
            return warm_runner(
                reference, options, embeds=embeds, demanded=demanded, variables=self.variables, cwd=self.cwd
            )
        except LeapUnavailableError as error:
            if demanded:
                raise
            if self.on_warning is not None:
                self.on_warning(f"the model host is not used: {error.message}")
            return None


@dataclass(frozen=True)
class Result(Generic[Value]):
    """Either a value or the LeapError that came instead of it."""

    value: Value | None = None
    error: LeapError | None = None

    @property
    def is_success(self) -> bool:
        return self.error is None

    def get(self) -> Value:
        """The value; raises the error when there is none."""
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value


class Leap:
    """The entry point: ``Leap.load("builtin")``, ``Leap.load("model.gguf")``, ``Leap.load("LFM2.5-1.2B-Instruct")``."""

    @staticmethod
    def load(
        reference: str | PathLike[str],
        options: ModelLoadingOptions | None = None,
        *,
        host: HostUse | str = HostUse.NEVER,
    ) -> ModelRunner:
        """Load a model that is on this machine: a file, a manifest, a directory, a name, or ``builtin``.

        ``host``: "use" takes the model that ``leap load`` keeps warm where it is held as the options say, "demand"
        takes nothing else, "never" (the default) loads it into this process. Raises LeapModelNotFoundError when
        nothing on disk answers to the reference (its hint says how to download it), LeapModelLoadingError when the
        file is damaged or not runnable, and LeapUnavailableError when a host is demanded that cannot answer.
        """
        return open_runner(fspath(reference), options, host=host)

    @staticmethod
    def connect(
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        patience: Patience | None = None,
        path: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> ModelRunner:
        """A remote model, asked over OpenAI's protocol: ``Leap.connect("https://host/v1", model="name")``.

        ``url``: the base of the protocol. ``model``: None takes the endpoint's only one. ``patience``: how long is
        waited, and how often asked again. ``path``: where chats are asked for, behind ``url``, instead of
        ``/chat/completions``. ``headers`` go with every request. ``body``: fields of every request, also such as leap
        does not know. Nothing is sent before the first question. Raises LeapOptionsError for an
        address that cannot be used, LeapEndpointError for a key that cannot be one, and where the user's configuration
        says ``offline``.
        """
        from .models.aliases_and_endpoints import Endpoint, base_url
        from .protocols.endpoint.endpoint_runner import open_endpoint

        endpoint = Endpoint(base_url(url), model, key=api_key, path=path, headers=headers or {}, body=body or {})
        return open_endpoint(endpoint, patience=patience)

    @staticmethod
    async def load_async(
        reference: str | PathLike[str],
        options: ModelLoadingOptions | None = None,
        *,
        host: HostUse | str = HostUse.NEVER,
    ) -> ModelRunner:
        """``load`` without blocking the event loop."""
        import asyncio  # here, because every start of a command would pay for it

        return await asyncio.to_thread(Leap.load, reference, options, host=host)

    @staticmethod
    def download_and_load(
        reference: str,
        quantization: str | None = None,
        options: ModelLoadingOptions | None = None,
        *,
        sampling: SamplingDefaults | None = None,
        download: DownloadOptions | None = None,
        on_event: Callable[[Event], object] | None = None,
        stop: threading.Event | None = None,
    ) -> ModelRunner:
        """Fetch what is missing of a model, and load it: a name, a repository's file, or the URL of a GGUF or of a
        manifest.

        ``sampling`` goes before what the manifest recommends, for generations that say nothing. ``on_event`` is called
        with the download's progress; setting ``stop`` ends it with DownloadStopped and keeps what has arrived. Raises
        what ``leap_core.models.download.download_model`` and ``load`` raise.
        """
        from .models.download.downloading import download_model

        model = download_model(reference, quantization, options=download, on_event=on_event, stop=stop)
        if sampling is not None:
            model = replace(model, sampling=sampling.over(model.sampling))
        return load_local(model, options or ModelLoadingOptions())

    @staticmethod
    async def download_and_load_async(
        reference: str,
        quantization: str | None = None,
        options: ModelLoadingOptions | None = None,
        *,
        sampling: SamplingDefaults | None = None,
        download: DownloadOptions | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> ModelRunner:
        """``download_and_load`` without blocking the event loop. Cancelling the task stops the download."""
        import asyncio  # here, because every start of a command would pay for it

        stop = threading.Event()
        load = partial(
            Leap.download_and_load,
            *(reference, quantization, options),
            sampling=sampling,
            download=download,
            on_event=on_event,
            stop=stop,
        )
        try:
            return await asyncio.to_thread(load)
        except asyncio.CancelledError:
            stop.set()
            raise

    @staticmethod
    def load_for_embedding(
        reference: str | PathLike[str],
        options: ModelLoadingOptions | None = None,
        *,
        host: HostUse | str = HostUse.NEVER,
    ) -> EmbeddingRunner:
        """Load a model that is on this machine to make vectors of texts. ``options.context_size`` is the most tokens
        of a text; ``host`` as in ``load``. Raises what ``load`` raises."""
        return open_embedding_runner(fspath(reference), options, host=host)

    @staticmethod
    async def load_for_embedding_async(
        reference: str | PathLike[str],
        options: ModelLoadingOptions | None = None,
        *,
        host: HostUse | str = HostUse.NEVER,
    ) -> EmbeddingRunner:
        """``load_for_embedding`` without blocking the event loop."""
        import asyncio  # here, because every start of a command would pay for it

        return await asyncio.to_thread(Leap.load_for_embedding, reference, options, host=host)


class LeapClient:
    """The Android SDK's spelling of the same."""

    @staticmethod
    def load_model(path: str | PathLike[str], options: ModelLoadingOptions | None = None) -> ModelRunner:
        """See ``Leap.load``."""
        return Leap.load(path, options)

    @staticmethod
    def load_model_as_result(
        path: str | PathLike[str], options: ModelLoadingOptions | None = None
    ) -> Result[ModelRunner]:
        """See ``Leap.load``; a LeapError is returned instead of raised."""
        return _as_result(lambda: Leap.load(path, options))

    @staticmethod
    async def load_model_async(path: str | PathLike[str], options: ModelLoadingOptions | None = None) -> ModelRunner:
        """See ``Leap.load_async``."""
        return await Leap.load_async(path, options)


def _as_result(action: Callable[[], Value]) -> Result[Value]:
    try:
        return Result(value=action())
    except LeapError as error:
        return Result(error=error)


def load_local(
    model: LocalModel, options: ModelLoadingOptions, variables: Mapping[str, str] | None = None
) -> ModelRunner:
    """Load files that were found; a GGUF that is new here is tried in a child process before. While the model is
    loaded, ``leap models remove`` leaves its files alone. ``variables``: the environment, by default this process's.

    A vocoder beside the model that belongs to a generation which this version cannot speak with leaves the model mute;
    one that the options name is an error. Raises LeapModelLoadingError."""
    if model.opener is not None:
        return cast(ModelRunner, _opened_by_plugin(model.opener, model.model_id, options, ModelRunner))
    from .inference.llama.library import use_engine
    from .inference.model_parts import EarlyOpening
    from .models.store import hold

    use_engine(options.engine)
    options, mute = _completed(model, options)
    _require_sound(model, options, variables)
    held = hold(model.path)
    opening = EarlyOpening(model.path, options)
    try:
        from .inference.runner import InProcessRunner

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


def _opened_by_plugin(
    opener: Plugin, reference: str, options: ModelLoadingOptions, *kinds: type[ModelRunner] | type[EmbeddingRunner]
) -> ModelRunner | EmbeddingRunner:
    """What the plugin makes of a reference. Raises LeapModelLoadingError where that is no runner of these kinds."""
    try:
        runner = opener.load()(reference, options)
        if not isinstance(runner, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise opener.error(f"opened {reference} as {type(runner).__name__}, and {wanted} is needed")
        return runner
    except LeapError as error:
        raise LeapModelLoadingError(error.message, hint=error.hint) from None
    except Exception as error:
        failed = opener.error(f"cannot open {reference}: {type(error).__name__}: {error}")
        raise LeapModelLoadingError(failed.message, hint=failed.hint) from error


def try_local(model: LocalModel, options: ModelLoadingOptions) -> None:
    """Make sure that llama.cpp survives the files, those that are new here by a trial in a child process.

    Raises LeapModelLoadingError.
    """
    if model.opener is None:
        _require_sound(model, _completed(model, options)[0], None)


def _completed(model: LocalModel, options: ModelLoadingOptions) -> tuple[ModelLoadingOptions, str | None]:
    """The options with what the model brings where they leave it open, and why its own vocoder is left alone."""
    own = {name: getattr(model, row.model) for name, row in LOADING.items() if row.model}
    options = replace(options, **{name: value for name, value in own.items() if getattr(options, name) in (None, ())})
    decoder = model.audio_decoder_path
    if options.audio_decoder_path is not None or decoder is None:
        return options, None
    from .inference.speech.companions import OtherGenerationError, check_generation

    tokenizer = options.audio_tokenizer_path or model.audio_tokenizer_path
    try:
        check_generation(decoder, tokenizer)
    except OtherGenerationError as error:
        return replace(options, audio_tokenizer_path=None), error.message
    return replace(options, audio_decoder_path=decoder, audio_tokenizer_path=tokenizer), None


def _require_sound(model: LocalModel, options: ModelLoadingOptions, variables: Mapping[str, str] | None) -> None:
    """Raises LeapModelLoadingError for files that llama.cpp does not survive, and says where another one is got."""
    try:
        _require_sound_files(model.path, options, variables)
    except LeapModelLoadingError as error:
        if model.owner is not None:
            whose = f"{model.path} belongs to {model.owner}, whose files may differ from what llama.cpp reads"
            error.hint = f"{whose}; {model.instead}"
        raise


def _require_sound_files(path: Path, options: ModelLoadingOptions, variables: Mapping[str, str] | None) -> None:
    from .inference.llama.library import current_engine
    from .inference.trial.trial_child import AUDIO_DECODER, AUDIO_TOKENIZER, MODEL, PROJECTOR, Subject
    from .inference.trial.verdicts import require_sound

    require_sound(Subject(path), own_template=options.chat_template is not None, variables=variables)
    if options.mm_proj_path is not None and current_engine().has_projectors:
        require_sound(Subject(options.mm_proj_path, PROJECTOR, {MODEL: path}), variables=variables)
    decoder, tokenizer = options.audio_decoder_path, options.audio_tokenizer_path
    if decoder is not None:
        from .inference.speech.companions import check_generation, tokenizer_beside

        check_generation(decoder, tokenizer)
        tokenizer = tokenizer or tokenizer_beside(decoder)
        beside = {MODEL: path} | ({AUDIO_TOKENIZER: tokenizer} if tokenizer is not None else {})
        require_sound(Subject(decoder, AUDIO_DECODER, beside), variables=variables)
    if options.adapters:
        from .inference.model_parts import require_sound_adapter

        for adapter in options.adapters:
            require_sound_adapter(adapter.path, path)


def load_local_for_embedding(
    model: LocalModel, options: ModelLoadingOptions, variables: Mapping[str, str] | None = None
) -> EmbeddingRunner:
    """Load files that were found, to make vectors. Like ``load_local``."""
    if model.opener is not None:
        return cast(EmbeddingRunner, _opened_by_plugin(model.opener, model.model_id, options, EmbeddingRunner))
    from .inference.embedding_runner import InProcessEmbeddingRunner
    from .inference.llama.library import use_engine
    from .inference.trial.trial_child import Subject
    from .inference.trial.verdicts import require_sound
    from .models.store import hold

    use_engine(options.engine)
    require_sound(Subject(model.path), own_template=True, variables=variables)
    held = hold(model.path)
    try:
        return InProcessEmbeddingRunner(model.path, model.model_id, options, hold=held)
    except BaseException:
        held.close()
        raise


def load_as_made(model: LocalModel, options: ModelLoadingOptions) -> ModelRunner | EmbeddingRunner:
    """Load files that were found for what the model was made for: to write, or to make vectors."""
    if model.opener is not None:
        return _opened_by_plugin(model.opener, model.model_id, options, ModelRunner, EmbeddingRunner)
    from .inference.gguf.header import read_gguf_header

    if read_gguf_header(model.path).pooling is None:
        return load_local(model, options)
    return load_local_for_embedding(model, options)
