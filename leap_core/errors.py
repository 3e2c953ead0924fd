"""Every error leap raises on purpose. The tree:

LeapError
├── LeapNotFoundError                  nothing answers to a name; each subclass is also of its kind
├── LeapModelLoadingError              a model cannot be read, understood or run
│   └── LeapModelNotFoundError         nothing answers to the name that was given
│       └── LeapModelNotDownloadedError    a known model that is not on this machine
├── LeapGenerationError                a generation failed; the conversation's history is unchanged
│   ├── LeapGenerationPromptExceedContextLengthError   the prompt alone does not fit the context
│   ├── LeapUnsupportedMediaError      a picture or sound for a model that cannot take it
│   ├── LeapConstraintError            the finished text does not satisfy its schema or grammar
│   └── LeapGuardError                 a guard's question stopped the message or the answer
├── LeapSchemaError                    a schema or grammar that cannot be used at all, found before generation
│   └── LeapGeneratableSchematizationError     a Python type that has no JSON schema
├── LeapGeneratableDeserializationError        a finished text that does not parse back into its Python type
├── LeapOptionsError                   an option outside its range (also a ValueError)
├── LeapSerializationError             JSON, text or WAV bytes that do not have the documented format
├── LeapModelDownloadError             a download that failed; what arrived is kept for resuming
│   ├── LeapModelDownloadSizeMismatchError
│   └── LeapModelDownloadSha256MismatchError
├── LeapToolError                      a tool was denied, unknown, or failed
│   └── LeapToolNotFoundError
├── LeapJobError                       a background job that failed, or does not exist
│   └── LeapJobNotFoundError
├── LeapSessionError                   no session answers to this name or id, or the name cannot be given
└── LeapUnavailableError               the warm host or the worker cannot be reached
    └── LeapEndpointError              a remote model cannot be reached, refuses, or breaks off

Each has a message (what and where) and may have a hint (what to do about it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

LONGEST_MESSAGE = 10_000
"""Characters. A message quotes what it refuses, which may be megabytes of a request."""


def cut(text: str) -> str:
    """A text that quotes what was given, with LONGEST_MESSAGE characters at most."""
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


LONGEST_WORD, LONGEST_REFUSAL = 200, 600


def shortened(text: str) -> str:
    """A refusal for a client, which repeats little of what it sent: no word of more than LONGEST_WORD characters, and
    LONGEST_REFUSAL in all."""
    words = (word if len(word) <= LONGEST_WORD else f"{word[:120]}…{word[-60:]}" for word in text.split(" "))
    text = " ".join(words)
    return text if len(text) <= LONGEST_REFUSAL else f"{text[:LONGEST_REFUSAL]}…"


class LeapError(Exception):
    """The base of all of leap's errors.

    ``message`` is cut after LONGEST_MESSAGE. ``hint`` is one sentence that says to the user what to do, or None.
    ``host_ended``: a warm model's process ended meanwhile; another one can do the same work.
    """

    host_ended = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = cut(message)
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Copied and sent to other processes as it is, whatever its subclass is made of."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[LeapError], arguments: tuple[object, ...], state: dict[str, object]) -> LeapError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error


class LeapNotFoundError(LeapError):
    """Nothing answers to a name, an id or a path; with the kind of thing as its other class."""


class LeapModelLoadingError(LeapError):
    """A model file cannot be read, is damaged, or llama.cpp refuses it."""


class LeapModelNotFoundError(LeapModelLoadingError, LeapNotFoundError):
    """No model file, catalogue entry or repository answers to this reference."""


class LeapModelNotDownloadedError(LeapModelNotFoundError):
    """A known model of which this machine has no, or only some, files; ``leap download`` fetches them."""


class LeapGenerationError(LeapError):
    """A generation failed. The conversation's history is left as it was."""


class LeapQueueFullError(LeapGenerationError):
    """As many requests wait for a warm model as may; later there will be space."""


class LeapGenerationPromptExceedContextLengthError(LeapGenerationError):
    """The prompt alone is longer than the context, so nothing was generated.

    ``prompt_tokens`` and ``context_size`` are both counted in tokens. ``at_least``: a prompt was not counted to its
    end. ``trained``: the largest context that the model allows, 0 where that is not known.
    """

    at_least, trained = False, 0

    def __init__(self, prompt_tokens: int, context_size: int, *, at_least: bool = False, trained: int = 0) -> None:
        counted = f"more than {prompt_tokens}" if at_least else prompt_tokens
        too_long = 0 < trained < max(prompt_tokens, context_size + 1)
        larger = f": its model allows {trained}" if too_long else " or load the model with a larger context size"
        super().__init__(
            f"the prompt has {counted} tokens and the context holds {context_size}", hint=f"shorten the prompt{larger}"
        )
        self.prompt_tokens = prompt_tokens
        self.context_size = context_size
        self.at_least = at_least
        self.trained = trained


LeapGenerationPromptExceedContextLength = LeapGenerationPromptExceedContextLengthError
"""The same error without the suffix."""


class LeapUnsupportedMediaError(LeapGenerationError):
    """An image or audio for a model that does not accept it, or whose projector is not loaded."""


class LeapConstraintError(LeapGenerationError):
    """The finished text does not satisfy its constraint; ``text``, ``problems`` and ``stats`` are kept, and ``facts``
    (``RequestFacts``) where they are known.

    ``cut_by``: the finish reason, such as ``"max_tokens"``, of an answer that ended before it was complete, else None.
    """

    cut_by: str | None = None
    facts: Any = None

    def __init__(
        self,
        message: str,
        *,
        text: str,
        problems: Sequence[str] = (),
        hint: str | None = None,
        stats: GenerationStats | None = None,
        cut_by: str | None = None,
        facts: Any = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.text = text
        self.problems = tuple(problems)
        self.stats = stats
        self.cut_by = cut_by
        if facts is not None:  # they stay in the process that has them
            self.facts = facts


class LeapGuardError(LeapGenerationError):
    """A guard stopped what was said (``what``: message or answer): the answers of ``question`` that stop it have the
    probability ``share``, which is ``threshold`` or more. Nothing of it was shown, sent on or added to the history."""

    def __init__(self, what: str, question: str, share: float, threshold: float) -> None:
        super().__init__(f"the guard stopped the {what}: {question} ({share:.0%}, stops from {threshold:.0%})")
        self.what = what
        self.question = question
        self.share = share
        self.threshold = threshold


class LeapSchemaError(LeapError):
    """A schema, regular expression or grammar that cannot be used, found before anything is generated.

    ``pointer`` is the JSON pointer (RFC 6901) of the offending part; "" is the whole document.
    """

    def __init__(self, message: str, *, pointer: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pointer = cut(pointer)


class LeapGeneratableSchematizationError(LeapSchemaError):
    """A Python type that cannot be expressed as a JSON schema."""


class LeapGeneratableDeserializationError(LeapError):
    """A finished text that does not parse back into the Python type it was generated for."""


class LeapOptionsError(LeapError, ValueError):
    """An option outside its range; ``option`` is its name, and ``reason`` the message without it."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"{option}: {reason}")
        self.option = cut(option)
        self.reason = cut(reason)


class LeapSerializationError(LeapError):
    """Data that does not have the documented format; ``path`` says where, such as ``messages[2].content[0]``, and
    ``reason`` is the message without it."""

    def __init__(self, reason: str, *, path: str = "", hint: str | None = None) -> None:
        super().__init__(f"{path}: {reason}" if path else reason, hint=hint)
        self.path = cut(path)
        self.reason = cut(reason)


class LeapModelDownloadError(LeapError):
    """A download that failed. What has arrived stays beside the target and is resumed next time. ``status``: the hub's
    HTTP status where that is the reason."""

    status: int | None = None


class LeapModelDownloadSizeMismatchError(LeapModelDownloadError):
    """The server sent another number of bytes than it announced."""


class LeapModelDownloadSha256MismatchError(LeapModelDownloadError):
    """The bytes that arrived do not have the announced SHA-256."""


class LeapToolError(LeapError):
    """A tool was denied by policy, is unknown, timed out, or failed."""


class LeapToolNotFoundError(LeapToolError, LeapNotFoundError):
    """No tool, or no file of tools, answers to a name."""


class LeapJobError(LeapError):
    """A background job failed, was cancelled, or does not exist."""


class LeapJobNotFoundError(LeapJobError, LeapNotFoundError):
    """No job, or more than one, answers to an id or its beginning."""


class LeapSessionError(LeapError):
    """No session, or more than one, answers to a name or an id; or a session cannot be called so."""


class LeapUnavailableError(LeapError):
    """The warm host or the job worker cannot be reached."""


class LeapEndpointError(LeapUnavailableError):
    """A remote model cannot be reached, refuses, or breaks off. ``status``: of HTTP, where there was one.
    ``of_request``: this request failed, and others may be answered. ``may_pass``: asked again, so may this one."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        status: int | None = None,
        of_request: bool = False,
        may_pass: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.of_request = of_request
        self.may_pass = may_pass


def of_system_limit(failure: BaseException) -> LeapUnavailableError | None:
    """The error for what a limit of the system refused, threads or memory; None for another failure."""
    if isinstance(failure, MemoryError):
        what = "not enough memory is left"
    elif isinstance(failure, RuntimeError) and str(failure) == "can't start new thread":  # Python says no more
        what = "the system allows no more threads"
    else:
        return None
    return LeapUnavailableError(what, hint="raise the limits of this process (ulimit -v, -u), or end other work")


@dataclass(frozen=True)
class GenerationStats:
    """Counts and speed of one generation.

    ``prompt_tokens``: all of the prompt; ``cached_prompt_tokens``: those of them that were restored from the cache.
    ``total_tokens`` = prompt_tokens + completion_tokens. ``token_per_second`` is the speed of decoding alone (0.0 when
    fewer than two tokens were made); ``time_to_first_token`` is in seconds from the request on, queueing included.
    ``reasoning_tokens``: those of completion_tokens that were reasoning; None for none, and where it is not known.
    ``engine``: the build of llama.cpp by its name; None for the default one, and where it is not known.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    token_per_second: float
    cached_prompt_tokens: int = 0
    time_to_first_token: float = 0.0
    reasoning_tokens: int | None = None
    engine: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields as an object, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def describe(self) -> str:
        """One line for people."""
        engine = "" if self.engine is None else f", engine {self.engine}"
        cached = f" ({self.cached_prompt_tokens} from the cache)" if self.cached_prompt_tokens else ""
        return (
            f"prompt {self.prompt_tokens} tokens{cached}, answer {self.completion_tokens} tokens, "
            f"{self.token_per_second:.1f} tokens/s, first token after {self.time_to_first_token:.2f} s{engine}"
        )
