"""Options of a generation. None means: the manifest's, else the catalogue's, else the runtime's.

Ranges are checked when an option is set; a value outside raises LeapOptionsError naming the option.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, field, fields, replace
from typing import Any, Protocol

from ..errors import LeapOptionsError
from ..schemas.json_values import JsonObject, is_number
from ..system.dataclass import dataclass
from .loading_options import (
    LARGEST,
    LoraAdapter,
    adapters_of,
    are_texts,
    check_integer,
    check_number,
    is_finite,
    plain_number,
    read_extras,
    refusing_unknown,
    suggestion,
)
from .loading_options import CacheOptions as CacheOptions
from .loading_options import ModelLoadingOptions as ModelLoadingOptions
from .messages import LeapFunctionCall


class FunctionCallParser(Protocol):
    """How a model writes calls: the markers around them, and reading and writing what is between them."""

    name: str
    start_marker: str
    end_marker: str

    def parse(self, body: str) -> list[LeapFunctionCall]:
        """The calls in the text between the markers; ValueError when it cannot be read."""
        ...

    def dump(self, calls: Sequence[LeapFunctionCall]) -> str:
        """The text, markers included, with which the model would have made these calls."""
        ...


AUTO = "auto"
PARSERS = (
    *(AUTO, "lfm", "hermes", "gpt_oss", "functionary_v32", "kimi_k2", "deepseek_v3", "deepseek_v31", "mistral"),
    *("granite", "nemotron", "apertus", "command_r7b", "minimax_m2", "seed_oss", "qwen3_coder", "glm45"),
    *("functiongemma", "gemma4", "functionary", "llama3_json"),
)
"""Names of the ways in which models write calls: ``conversation.calls.dialects``."""
CONSTRAINTS = ("json_schema_constraint", "regex_constraint", "grammar_constraint", "choices_constraint")
"""Options of which at most one is given."""


MOST_LOGPROBS = 20
LEAST_IMAGE_TOKENS, MOST_IMAGE_TOKENS = 16, 1024


def _option(default: object, read: Callable[[str, Any], Any], to_json: Callable[[Any], object] | None = None) -> Any:
    """The field of an option. ``read`` takes its name and a value and returns what is kept, or raises LeapOptionsError;
    ``to_json`` makes JSON of a value that is none."""
    metadata = {"read": read, "to_json": to_json}
    if default == {}:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def _number(low: float, high: float = math.inf) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        check_number(name, value, low, high)
        return value

    return read


def _above_zero(name: str, value: Any) -> Any:
    check_number(name, value, 0.0, math.inf)
    if value == 0:
        raise LeapOptionsError(name, "must be above 0 (1 means no penalty)")
    return value


def _integer(low: int, high: int = LARGEST) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        check_integer(name, value, low)
        if value is not None and value > high:
            raise LeapOptionsError(name, f"{value} must be {high} or less")
        return value

    return read


def _text(name: str, value: Any) -> Any:
    if not isinstance(value, (str, type(None))):
        raise LeapOptionsError(name, f"{value!r} is not a text")
    return value


def _switch(name: str, value: Any) -> Any:
    if not isinstance(value, bool):
        raise LeapOptionsError(name, f"{value!r} is not true or false")
    return value


def _switch_or_none(name: str, value: Any) -> Any:
    return None if value is None else _switch(name, value)


def _texts(nothing: Collection[object]) -> Callable[[str, Any], Any]:
    """A list of texts; ``nothing``: values that represent none."""

    def read(name: str, value: Any) -> Any:
        if not are_texts(value) and value not in nothing:
            raise LeapOptionsError(name, "must be a list of non-empty strings")
        return value

    return read


def _token_ids(name: str, value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or not all(type(token) is int and token >= 0 for token in value):
        raise LeapOptionsError(name, "must be a list of token ids")
    return value


def _biases(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise LeapOptionsError(name, "must map token ids to numbers")
    for token, bias in value.items():
        if not isinstance(token, int) or isinstance(token, bool) or token < 0:
            raise LeapOptionsError(name, f"{token!r} is not a token id")
        if not is_number(bias) or bias != bias or (isinstance(bias, int) and not is_finite(bias)):
            raise LeapOptionsError(name, f"the bias of token {token} is not a number")
    return value


def _object(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise LeapOptionsError(name, f"{value!r} is not an object")
    return value


def _adapters(_name: str, value: Any) -> Any:
    return value if value in (None, ()) else adapters_of(value)


def _parser(name: str, value: Any) -> Any:
    has_name = isinstance(getattr(value, "name", None), str) and not isinstance(value, type)
    if value is not None and value not in PARSERS and not has_name:
        hint = "; give an object of the class" if isinstance(value, type) else ""
        raise LeapOptionsError(name, f"{value!r} is not one of {', '.join(PARSERS)}, None{hint}")
    return value


def _parser_name(parser: Any) -> object:
    return parser if isinstance(parser, (str, type(None))) else parser.name


def _tokens_as_text(biases: Mapping[int, float]) -> object:
    return {str(token): bias for token, bias in biases.items()}


def _adapters_to_json(adapters: Sequence[LoraAdapter] | None) -> object:
    return None if adapters is None else [adapter.to_json() for adapter in adapters]


def _list_or_none(values: Sequence[object] | None) -> object:
    return list(values) if values else None


@refusing_unknown
@dataclass
class GenerationOptions:
    """How one answer is generated. None means the model's or leap's default.

    Sampling is applied in llama.cpp's order: penalties, top_k, top_p, min_p, temperature.
    Raises LeapOptionsError for a value outside its range.
    """

    temperature: float | None = _option(None, _number(0.0))
    """Randomness of sampling, from 0 (always the likeliest token); None: the model's own."""
    top_p: float | None = _option(None, _number(0.0, 1.0))
    """Nucleus sampling: the likeliest tokens that reach this probability together, 0 to 1."""
    min_p: float | None = _option(None, _number(0.0, 1.0))
    """Only tokens at least this likely, relative to the likeliest, 0 to 1."""
    repetition_penalty: float | None = _option(None, _above_zero)
    """Divides the logits of tokens in the last ``repeat_last_n``; above 0, 1 is none."""
    top_k: int | None = _option(None, _integer(0))
    """Only this many of the likeliest tokens, from 0 (all)."""
    rng_seed: int | None = _option(None, _integer(0))
    """Makes sampling repeatable, from 0; None: a new seed."""
    json_schema_constraint: str | None = _option(None, _text)
    """JSON text of a schema that the answer conforms to. At most one of the four constraints is set."""
    function_call_parser: FunctionCallParser | str | None = _option(AUTO, _parser, _parser_name)
    """How calls are read: "auto" (by the model), one of ``PARSERS``, a parser object, or None for the raw text."""
    inject_schema_into_prompt: bool = _option(True, _switch)
    """Show the schema to the model too."""
    max_tokens: int | None = _option(None, _integer(1))
    """Most tokens of the answer, from 1; None: as many as fit into the context."""
    inline_thinking_tags: bool = _option(False, _switch)
    """Deliver reasoning as text between literal think tags."""
    enable_thinking: bool = _option(False, _switch)
    """Deliver reasoning as ReasoningChunks, and ask a template that has the switch to think. The reply's
    ``reasoning_content`` holds the reasoning either way."""
    chat_template_kwargs: Mapping[str, Any] = _option({}, _object, dict)
    """Values for the chat template by name, such as ``reasoning_effort``; it gets those that it reads."""
    extras: str | None = _option(None, _text)
    """JSON text: an object of options by these names, which win over the fields."""
    stop: Sequence[str] = _option((), _texts(((), [])), _list_or_none)
    """Texts that end the answer and are not part of it; searched in the text alone, not in reasoning."""
    frequency_penalty: float | None = _option(None, _number(-2.0, 2.0))
    """Subtracted from a token's logit for each time it occurred in the last ``repeat_last_n``, -2 to 2."""
    presence_penalty: float | None = _option(None, _number(-2.0, 2.0))
    """Subtracted from the logit of a token that occurred in the last ``repeat_last_n``, -2 to 2."""
    repeat_last_n: int | None = _option(None, _integer(-1))
    """Tokens that the three penalties look back, -1 for the whole context, 0 for none; None: 64."""
    logit_bias: Mapping[int, float] = _option({}, _biases, _tokens_as_text)
    """Added to the logits of these token ids."""
    tool_choice: str | None = _option(None, _text)
    """auto, required, none, or the name of the function to call; None: auto."""
    regex_constraint: str | None = _option(None, _text)
    """Regular expression that the whole answer matches."""
    grammar_constraint: str | None = _option(None, _text)
    """Lark grammar that the answer follows."""
    choices_constraint: Sequence[str] | None = _option(None, _texts((None,)), _list_or_none)
    """The answer is one of these texts."""
    audio_temperature: float | None = _option(None, _number(0.0))
    """``temperature`` of the codes of speech; None: by the kind of speech."""
    audio_top_k: int | None = _option(None, _integer(0))
    """``top_k`` of the codes of speech, from 0 (all); None: by the kind of speech."""
    image_tokens: int | None = _option(None, _integer(LEAST_IMAGE_TOKENS, MOST_IMAGE_TOKENS))
    """Most tokens of one image, 16 to 1,024; larger images are scaled down. None: 256."""
    image_tiles: bool = _option(False, _switch)
    """Cut large images into up to ten tiles of 256 tokens and a thumbnail instead."""
    adapters: Sequence[LoraAdapter] | None = _option(None, _adapters, _adapters_to_json)
    """LoRA adapters that compute this answer, none when empty; None: those of the loaded model."""
    logprobs: bool = _option(False, _switch)
    """Report in Complete how likely each token was."""
    top_logprobs: int | None = _option(None, _integer(0, MOST_LOGPROBS))
    """Also report so many of the likeliest tokens at each place, 0 to 20."""
    logprob_tokens: Sequence[int] = _option((), _token_ids, _list_or_none)
    """Instead report the log probabilities of these tokens at each place, in this order; see ``TokenLogprob``."""
    decision: str | None = _option(None, _text)
    """JSON text: variables of the template with which a GGUF made for decisions asks (its own, named systemone). The
    prompt is what it makes of them, with the images of the messages."""
    prompt_logprobs: bool = _option(False, _switch)
    """Report the prompt's tokens too, where it is text alone; all of it is then computed."""
    forced_logprobs: bool = _option(True, _switch)
    """Compute also tokens that the constraint leaves no choice about; if not, they count as certain."""
    additional_properties: bool = _option(False, _switch)
    """Let objects have keys that the schema permits and does not name."""
    any_whitespace: bool = _option(False, _switch)
    """Allow any usual layout of JSON; otherwise it is on one line."""
    complete_json: bool | None = _option(None, _switch_or_none)
    """End the JSON the shortest way before the tokens are used up. None: false for one answer, true for a line of a
    batch and for a task."""
    repairs: int | None = _option(None, _integer(0))
    """How often an answer that does not conform is generated again, from 0; None: twice, and once at an endpoint."""
    repetition_detection: bool = _option(True, _switch)
    """End an answer that repeats up to 200 tokens word for word, hundreds of tokens long."""
    think_budget: int | None = _option(None, _integer(0))
    """Most tokens of reasoning, after which the answer begins; 0 ends reasoning at once."""
    think_budget_message: str | None = _option(None, _text)
    """A sentence that ends reasoning when its budget is used up."""
    priority: int | None = _option(None, _integer(-LARGEST))
    """Which of several requests to a model goes first: the lower value; None: 0. See ``conversation.priority``."""

    def __post_init__(self) -> None:
        self._check_constraints()

    def __setattr__(self, name: str, value: object) -> None:
        """Set an option. Raises LeapOptionsError for one that is not there or a value outside its range."""
        option = self.__dataclass_fields__.get(name)
        if option is None:
            raise LeapOptionsError(name, f"there is no such option{suggestion(name, self.__dataclass_fields__)}")
        if value is not option.default:
            value = option.metadata["read"](name, plain_number(value))
        object.__setattr__(self, name, value)

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer is to say how likely its tokens were."""
        return self.logprobs or self.top_logprobs is not None or bool(self.logprob_tokens)

    @classmethod
    def build(cls, action: Callable[[GenerationOptions], object]) -> GenerationOptions:
        """``GenerationOptions.build(lambda o: setattr(o, "temperature", 0.3))``: fill in, then validate."""
        options = cls()
        action(options)
        options.validate()
        return options

    def set_response_format(self, kind: type) -> None:
        """Constrain the answer to JSON that parses back into ``kind``: a dataclass, TypedDict, Enum, pydantic model
        or any type with a JSON-schema method."""
        from ..schemas.response_types import schema_text_of

        self.json_schema_constraint = schema_text_of(kind)

    def validate(self) -> None:
        """Check every option against its range; LeapOptionsError names the first that is outside."""
        for option in fields(self):
            option.metadata["read"](option.name, getattr(self, option.name))
        self._check_constraints()

    def _check_constraints(self) -> None:
        constraints = [name for name in CONSTRAINTS if getattr(self, name) is not None]
        if len(constraints) > 1:
            raise LeapOptionsError(constraints[1], f"cannot be combined with {constraints[0]}")

    def with_extras(self) -> GenerationOptions:
        """These options with what ``extras`` says. Raises LeapOptionsError for what it cannot say."""
        return (
            self
            if self.extras is None
            else replace(self, extras=None, **read_extras(self.__dataclass_fields__, self.extras))
        )

    def with_defaults(self, defaults: SamplingDefaults) -> GenerationOptions:
        """A copy in which sampling options left as None take the given defaults."""
        missing = [f.name for f in fields(defaults) if getattr(self, f.name) is None]
        return replace(self, **{name: getattr(defaults, name) for name in missing})

    def to_json(self) -> JsonObject:
        """Only what differs from the default. A parser object is written by its name."""
        value: JsonObject = {}
        for option in fields(self):
            to_json = option.metadata["to_json"]
            current, default = getattr(self, option.name), option.default
            if to_json is not None:
                current, default = to_json(current), to_json({} if default is MISSING else default)
            if current != default:
                value[option.name] = current
        return value

    @classmethod
    def from_json(cls, value: object, path: str = "options") -> GenerationOptions:
        """Read what ``to_json`` writes; an unknown name raises LeapOptionsError."""
        if not isinstance(value, dict):
            raise LeapOptionsError(path, "expected an object")
        options = dict(value)
        for name in options:
            if name not in cls.__dataclass_fields__:
                raise LeapOptionsError(f"{path}.{name}", "there is no such option")
        if "logit_bias" in options:
            try:
                options["logit_bias"] = {int(token): bias for token, bias in options["logit_bias"].items()}
            except (ValueError, AttributeError):
                raise LeapOptionsError(f"{path}.logit_bias", "expected an object of token ids and numbers") from None
        return cls(**options)


@dataclass(frozen=True)
class SamplingDefaults:
    """A model's recommended sampling, from its manifest or the catalogue; None where it recommends nothing."""

    temperature: float | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    top_k: int | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", "repetition_penalty"):
            check_number(name, getattr(self, name), 0.0, 1.0 if name in ("top_p", "min_p") else math.inf)
        check_integer("top_k", self.top_k, 0)

    def over(self, other: SamplingDefaults) -> SamplingDefaults:
        """These, and where they say nothing the other's."""
        names = [f.name for f in fields(self)]
        return SamplingDefaults(**{n: v if (v := getattr(self, n)) is not None else getattr(other, n) for n in names})


def check_options(options: object) -> None:
    """Raises LeapOptionsError for what is handed over in the place of GenerationOptions and is none."""
    if options is not None and not isinstance(options, GenerationOptions):
        raise LeapOptionsError("options", f"GenerationOptions are needed, not {type(options).__name__}")


def check_tool_choice(choice: str | None, functions: Sequence[str]) -> None:
    """Raises LeapOptionsError for a choice that none of the ``functions`` can meet."""
    if choice in (None, "auto", "none"):
        return
    if not functions:
        raise LeapOptionsError("tool_choice", f"{choice!r}, but no functions are registered")
    if choice != "required" and choice not in functions:
        raise LeapOptionsError("tool_choice", f"there is no function {choice!r}; known are {', '.join(functions)}")
