"""Run Liquid's LFM2 models, and other GGUF models, on your own machine: the LEAP SDK's concepts in Python.

    from leap_core import Leap

    with Leap.load("builtin") as runner:
        for response in runner.create_conversation().generate_response("What is the capital of France?"):
            ...

Every public name is found here and imported when it is first used, so ``import leap_core`` costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

from .system import __version__ as __version__

_NAMES = {
    "conversation.calls.declaration": "LeapFunction LeapFunctionParameter declare",
    "conversation.calls.parameter_types": """
        ArrayType BooleanType IntegerType LeapFunctionParameterType NullType NumberType ObjectType SchemaType
        StringType
    """,
    "conversation.calls.parsers": "HermesFunctionCallParser LFMFunctionCallParser LeapFunctionCallParser",
    "conversation.calls.pythonic": "PythonicSyntaxError",
    "conversation.conversation": "Conversation Omission Overflow",
    "conversation.embedding": "EmbeddingKind EmbeddingRunner Pooling TooLong",
    "conversation.generator": "Generation HiddenStates PromptProgress RenderedPrompt",
    "conversation.loading_options": "CacheOptions LoraAdapter ModelLoadingOptions",
    "conversation.messages": """
        Audio AudioPcmF32 ChatMessage ChatMessageContent ChatMessageRole Image LeapFunctionCall LeapJSONEncoder Speech
        Text leap_object_hook messages_from_json
    """,
    "conversation.options": "GenerationOptions SamplingDefaults",
    "conversation.request": "Request",
    "conversation.responses": """
        AudioSample Chunk Complete FunctionCalls FunctionResult GenerationFinishReason MessageResponse ReasoningChunk
    """,
    "conversation.runner": "GenerationHandler ModelRunner",
    "conversation.streams": "ResponseStream",
    "errors": """
        GenerationStats LeapConstraintError LeapEndpointError LeapError LeapGeneratableDeserializationError
        LeapGeneratableSchematizationError LeapGenerationError LeapGenerationPromptExceedContextLength
        LeapGenerationPromptExceedContextLengthError LeapGuardError LeapJobError LeapJobNotFoundError
        LeapModelDownloadError LeapModelDownloadSha256MismatchError LeapModelDownloadSizeMismatchError
        LeapModelLoadingError LeapModelNotDownloadedError LeapModelNotFoundError LeapNotFoundError LeapOptionsError
        LeapQueueFullError LeapSchemaError LeapSerializationError LeapSessionError LeapToolError LeapToolNotFoundError
        LeapUnavailableError LeapUnsupportedMediaError
    """,
    "models.download.downloading": "DownloadOptions",
    "models.download.sdk": """
        DownloadInProgress DownloadableModel Downloaded HuggingFaceDownloadableModel LeapDownloadableModel
        LeapModelDownloader ModelDownloadStatus NotOnLocal
    """,
    "models.http": "DownloadStopped",
    "models.manifest": "Manifest read_manifest",
    "models.store": "LeapModelInUseError",
    "opening": "HostUse Leap LeapClient Result open_embedding_runner open_runner",
    "schemas.python_types": "Guide schema_of",
    "schemas.response_types": "parse_result",
    "tasks.decisions.deciding": "decide",
    "tasks.decisions.questions": "Decision Question",
    "tools.policy": "FunctionPolicy ToolPolicy",
    "tools.run": "FunctionRun run_functions",
}
"""The public names, by the module that defines them; ``__init__.pyi`` has the same for type checkers."""
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

_ALIASES = {
    "decisions": "tasks.decisions",
    "functions": "conversation.calls",
    "host": "server",
    "host.client": "protocols.host",
    "messages": "conversation.messages",
    "options": "conversation.options",
    "responses": "conversation.responses",
    "search": "tasks.search",
    "sessions": "conversation.sessions",
    "speech": "inference.speech",
    "talk": "conversation.talk",
    "talk.events": "conversation.talk.hearing",
}
"""Modules that programs import by another name than that of their place."""
_BEGINNINGS = tuple([f"{__name__}.{alias}" for alias in _ALIASES])

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _AliasFinder:
    """Finds and loads a module of ``_ALIASES`` under its other name. It is one module under both. Its bases of
    ``importlib.abc`` would take a third of the import of this package."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not fullname.startswith(_BEGINNINGS):
            return None
        name = fullname.partition(".")[2]
        alias = next((alias for alias in sorted(_ALIASES, reverse=True) if f"{name}.".startswith(f"{alias}.")), None)
        if alias is None:
            return None
        place = f"{__name__}.{_ALIASES[alias]}{name[len(alias) :]}"
        return ModuleSpec(fullname, cast(Any, self), origin=place, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, _AliasFinder())
