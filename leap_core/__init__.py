"""Run Liquid's LFM2 models, and other GGUF models, on your own machine: the LEAP SDK's concepts in Python.

    from leap_core import Leap

    with Leap.load("builtin") as runner:
        for response in runner.create_conversation().generate_response("What is the capital of France?"):
            ...

Every public name is found here and imported when it is first used, so ``import leap_core`` costs next to nothing.
"""

# ruff: noqa: I001 (the exports below are one statement a module)
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_MODULES = {
    "schemas.response_types": ("Guide", "parse_result", "schema_of"),
    "runner.conversation": ("Conversation",),
    "runner.overflow": ("Omission", "Overflow"),
    "runner.response_stream": ("ResponseStream",),
    "errors": (
        "LeapConstraintError",
        "LeapEndpointError",
        "LeapError",
        "LeapGeneratableDeserializationError",
        "LeapGeneratableSchematizationError",
        "LeapGenerationError",
        "LeapGenerationPromptExceedContextLength",
        "LeapGenerationPromptExceedContextLengthError",
        "LeapGuardError",
        "LeapJobError",
        "LeapJobNotFoundError",
        "LeapModelDownloadError",
        "LeapModelDownloadSha256MismatchError",
        "LeapModelDownloadSizeMismatchError",
        "LeapModelLoadingError",
        "LeapModelNotDownloadedError",
        "LeapModelNotFoundError",
        "LeapNotFoundError",
        "LeapOptionsError",
        "LeapQueueFullError",
        "LeapSchemaError",
        "LeapSerializationError",
        "LeapSessionError",
        "LeapToolError",
        "LeapToolNotFoundError",
        "LeapUnavailableError",
        "LeapUnsupportedMediaError",
    ),
    "functions": (
        "ArrayType",
        "BooleanType",
        "HermesFunctionCallParser",
        "IntegerType",
        "LFMFunctionCallParser",
        "LeapFunction",
        "LeapFunctionCallParser",
        "LeapFunctionParameter",
        "LeapFunctionParameterType",
        "NullType",
        "NumberType",
        "ObjectType",
        "SchemaType",
        "StringType",
    ),
    "tools.run": ("FunctionRun", "run_functions"),
    "tools.policy": ("FunctionPolicy", "ToolPolicy"),
    "functions.declaration": ("declare",),
    "decisions.deciding": ("decide",),
    "decisions.questions": ("Decision", "Question"),
    "opening": ("HostUse", "Leap", "LeapClient", "Result", "open_embedding_runner", "open_runner"),
    "options.adapters": ("LoraAdapter",),
    "runner.hidden_states": ("HiddenStates",),
    "runner.embedding": ("EmbeddingKind", "EmbeddingRunner", "Pooling", "TooLong"),
    "messages": (
        "Audio",
        "AudioPcmF32",
        "ChatMessage",
        "ChatMessageContent",
        "ChatMessageRole",
        "Image",
        "LeapFunctionCall",
        "LeapJSONEncoder",
        "Text",
        "leap_object_hook",
        "messages_from_json",
        "Speech",
    ),
    "models.download.sdk": (
        "DownloadInProgress",
        "DownloadableModel",
        "Downloaded",
        "HuggingFaceDownloadableModel",
        "LeapDownloadableModel",
        "LeapModelDownloader",
        "ModelDownloadStatus",
        "NotOnLocal",
    ),
    "models.manifests.manifest": ("Manifest", "read_manifest"),
    "options": ("CacheOptions", "GenerationOptions", "ModelLoadingOptions", "SamplingDefaults"),
    "responses": (
        "AudioSample",
        "Chunk",
        "Complete",
        "FunctionCalls",
        "FunctionResult",
        "GenerationFinishReason",
        "MessageResponse",
        "ReasoningChunk",
    ),
    "models.download.downloading": ("DownloadOptions",),
    "models.hub.hub_retries": ("DownloadStopped",),
    "models.installed.model_store": ("LeapModelInUseError",),
    "functions.pythonic": ("PythonicSyntaxError",),
    "statistics": ("GenerationStats",),
    "runner.contract": ("Generation", "GenerationHandler", "ModelRunner", "RenderedPrompt"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]

if TYPE_CHECKING:
    from .schemas.response_types import Guide as Guide, parse_result as parse_result, schema_of as schema_of
    from .runner.conversation import Conversation as Conversation
    from .runner.overflow import Omission as Omission
    from .runner.overflow import Overflow as Overflow
    from .runner.response_stream import ResponseStream as ResponseStream
    from .errors import (
        LeapConstraintError as LeapConstraintError,
        LeapEndpointError as LeapEndpointError,
        LeapError as LeapError,
        LeapGeneratableDeserializationError as LeapGeneratableDeserializationError,
        LeapGeneratableSchematizationError as LeapGeneratableSchematizationError,
        LeapGenerationError as LeapGenerationError,
        LeapGenerationPromptExceedContextLength as LeapGenerationPromptExceedContextLength,
        LeapGenerationPromptExceedContextLengthError as LeapGenerationPromptExceedContextLengthError,
        LeapGuardError as LeapGuardError,
        LeapJobError as LeapJobError,
        LeapJobNotFoundError as LeapJobNotFoundError,
        LeapModelDownloadError as LeapModelDownloadError,
        LeapModelDownloadSha256MismatchError as LeapModelDownloadSha256MismatchError,
        LeapModelDownloadSizeMismatchError as LeapModelDownloadSizeMismatchError,
        LeapModelLoadingError as LeapModelLoadingError,
        LeapModelNotDownloadedError as LeapModelNotDownloadedError,
        LeapModelNotFoundError as LeapModelNotFoundError,
        LeapNotFoundError as LeapNotFoundError,
        LeapOptionsError as LeapOptionsError,
        LeapQueueFullError as LeapQueueFullError,
        LeapSchemaError as LeapSchemaError,
        LeapSerializationError as LeapSerializationError,
        LeapSessionError as LeapSessionError,
        LeapToolError as LeapToolError,
        LeapToolNotFoundError as LeapToolNotFoundError,
        LeapUnavailableError as LeapUnavailableError,
        LeapUnsupportedMediaError as LeapUnsupportedMediaError,
    )
    from .functions import (
        ArrayType as ArrayType,
        BooleanType as BooleanType,
        HermesFunctionCallParser as HermesFunctionCallParser,
        IntegerType as IntegerType,
        LFMFunctionCallParser as LFMFunctionCallParser,
        LeapFunction as LeapFunction,
        LeapFunctionCallParser as LeapFunctionCallParser,
        LeapFunctionParameter as LeapFunctionParameter,
        LeapFunctionParameterType as LeapFunctionParameterType,
        NullType as NullType,
        NumberType as NumberType,
        ObjectType as ObjectType,
        SchemaType as SchemaType,
        StringType as StringType,
    )
    from .tools.run import FunctionRun as FunctionRun, run_functions as run_functions
    from .tools.policy import FunctionPolicy as FunctionPolicy, ToolPolicy as ToolPolicy
    from .functions.declaration import declare as declare
    from .decisions.deciding import decide as decide
    from .decisions.questions import Decision as Decision, Question as Question
    from .opening import (
        HostUse as HostUse,
        Leap as Leap,
        LeapClient as LeapClient,
        Result as Result,
        open_embedding_runner as open_embedding_runner,
        open_runner as open_runner,
    )
    from .options.adapters import LoraAdapter as LoraAdapter
    from .runner.hidden_states import HiddenStates as HiddenStates
    from .runner.embedding import (
        EmbeddingKind as EmbeddingKind,
        EmbeddingRunner as EmbeddingRunner,
        Pooling as Pooling,
        TooLong as TooLong,
    )
    from .messages import (
        Audio as Audio,
        AudioPcmF32 as AudioPcmF32,
        ChatMessage as ChatMessage,
        ChatMessageContent as ChatMessageContent,
        ChatMessageRole as ChatMessageRole,
        Image as Image,
        LeapFunctionCall as LeapFunctionCall,
        LeapJSONEncoder as LeapJSONEncoder,
        Text as Text,
        leap_object_hook as leap_object_hook,
        messages_from_json as messages_from_json,
        Speech as Speech,
    )
    from .models.download.sdk import (
        DownloadInProgress as DownloadInProgress,
        DownloadableModel as DownloadableModel,
        Downloaded as Downloaded,
        HuggingFaceDownloadableModel as HuggingFaceDownloadableModel,
        LeapDownloadableModel as LeapDownloadableModel,
        LeapModelDownloader as LeapModelDownloader,
        ModelDownloadStatus as ModelDownloadStatus,
        NotOnLocal as NotOnLocal,
    )
    from .models.manifests.manifest import Manifest as Manifest, read_manifest as read_manifest
    from .models.download.downloading import DownloadOptions as DownloadOptions
    from .models.hub.hub_retries import DownloadStopped as DownloadStopped
    from .models.installed.model_store import LeapModelInUseError as LeapModelInUseError
    from .functions.pythonic import PythonicSyntaxError as PythonicSyntaxError
    from .options import (
        CacheOptions as CacheOptions,
        GenerationOptions as GenerationOptions,
        ModelLoadingOptions as ModelLoadingOptions,
        SamplingDefaults as SamplingDefaults,
    )
    from .responses import (
        AudioSample as AudioSample,
        Chunk as Chunk,
        Complete as Complete,
        FunctionCalls as FunctionCalls,
        FunctionResult as FunctionResult,
        GenerationFinishReason as GenerationFinishReason,
        MessageResponse as MessageResponse,
        ReasoningChunk as ReasoningChunk,
    )
    from .statistics import GenerationStats as GenerationStats
    from .runner.contract import (
        Generation as Generation,
        GenerationHandler as GenerationHandler,
        ModelRunner as ModelRunner,
        RenderedPrompt as RenderedPrompt,
    )


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
