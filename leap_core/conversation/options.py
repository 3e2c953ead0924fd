"""Options of a generation. None means: the manifest's, else the catalogue's, else the runtime's.

Ranges are checked when an option is set; a value outside raises LeapOptionsError naming the option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import LeapOptionsError
from ..system.dataclass import dataclass
from .loading_options import Adapters, LoraAdapter, read_extras, refusing_unknown
from .loading_options import CacheOptions as CacheOptions
from .loading_options import ModelLoadingOptions as ModelLoadingOptions
from .option_rows import (
    LARGEST,
    SAME,
    Biases,
    Endpoint,
    Members,
    Number,
    OptionKind,
    Switch,
    SwitchOrText,
    Texts,
    TokenIds,
    Whole,
    Words,
    option,
    rows_of,
    suggestion,
)

if TYPE_CHECKING:
    from .messages import ChatMessage, LeapFunctionCall


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
    *(AUTO, "lfm", "hermes", "json", "gpt_oss", "functionary_v32", "kimi_k2", "deepseek_v3", "deepseek_v31", "mistral"),
    *("granite", "nemotron", "apertus", "command_r7b", "minimax_m2", "seed_oss", "qwen3_coder", "glm45"),
    *("functiongemma", "gemma4"),
    *("deepseek_v32", "deepseek_v4", "minicpm5", "kimi_k3", "minimax_m3", "apriel", "gigachat31", "gigachat3"),
    *("command_r", "functools", "functionary", "llama3_json"),
)
"""Names of the ways in which models write calls: ``conversation.calls.dialects``."""
BUDGETS = ("reasoning_budget_tokens", "thinking_budget_tokens", "thinking_token_budget", "thinking_budget")
"""What llama.cpp, vLLM and Qwen call ``think_budget``."""
MOST_LOGPROBS = 20
LEAST_IMAGE_TOKENS, MOST_IMAGE_TOKENS = 16, 1024


class _Parser(OptionKind):
    """How calls are read: a name of ``PARSERS``, a parser, or None for the raw text."""

    def read(self, name: str, value: Any) -> Any:
        has_name = isinstance(getattr(value, "name", None), str) and not isinstance(value, type)
        if value is not None and value not in PARSERS and not has_name:
            hint = "; give an object of the class" if isinstance(value, type) else ""
            raise LeapOptionsError(name, f"{value!r} is not one of {', '.join(PARSERS)}, None{hint}")
        return value

    def to_json(self, value: Any) -> Any:
        return value if isinstance(value, (str, type(None))) else value.name

    def schema(self) -> dict[str, Any]:
        return {"enum": [*PARSERS, None]}


_sampling = partial(option, chat=(SAME,), ollama=SAME, endpoint=Endpoint.SENT, task=True)
"""What changes how tokens are drawn: chat completions and Ollama have it under its own name, endpoints are sent it,
and it wins over a task's."""


@refusing_unknown
@dataclass
class GenerationOptions:
    """How one answer is generated. None means the model's or leap's default.

    Sampling is applied in llama.cpp's order: penalties, top_k, typical_p, top_p, min_p, xtc, temperature.
    Raises LeapOptionsError for a value outside its range.
    """

    temperature: float | None = _sampling(
        Number(0.0),
        responses=SAME,
        anthropic=SAME,
        model=SAME,
        common=True,
        text="Randomness of sampling, 0 or more; 0 takes the likeliest token.",
    )
    """None: the model's own."""
    top_p: float | None = _sampling(
        Number(0.0, 1.0),
        responses=SAME,
        anthropic=SAME,
        model=SAME,
        text="Sample from the likeliest tokens up to this total probability, 0 to 1.",
    )
    min_p: float | None = _sampling(
        Number(0.0, 1.0), model=SAME, text="Drop tokens less likely than this fraction of the likeliest, 0 to 1."
    )
    repetition_penalty: float | None = _sampling(
        Number(0.0, above=True),
        chat=(SAME, "repeat_penalty"),
        ollama="repeat_penalty",
        model=SAME,
        text="Penalize tokens that already occurred; 1 is off, higher values penalize more.",
    )
    """Divides the logits of tokens in the last ``repeat_last_n``."""
    top_k: int | None = _sampling(
        Whole(), anthropic=SAME, model=SAME, text="Sample from this many of the likeliest tokens; 0 is all."
    )
    rng_seed: int | None = _sampling(
        Whole(),
        chat=("seed",),
        ollama="seed",
        flag="--seed",
        common=True,
        text="Random seed; the same seed repeats the answer.",
    )
    """None: a new seed."""
    json_schema_constraint: str | None = option(
        Words(), chat=("response_format",), endpoint=Endpoint.SENT, constraint=True
    )
    """JSON text of a schema that the answer conforms to. At most one of the four constraints is set."""
    function_call_parser: FunctionCallParser | str | None = option(
        _Parser(), AUTO, endpoint="a format of calls", extras=False
    )
    """How calls are read: "auto" (by the model), one of ``PARSERS``, a parser object, or None for the raw text."""
    inject_schema_into_prompt: bool = option(Switch(), True)
    """Show the schema to the model too."""
    max_tokens: int | None = _sampling(
        Whole(1),
        chat=(SAME, "max_completion_tokens"),
        ollama="",
        responses="max_output_tokens",
        anthropic=SAME,
        common=True,
        text="Stop after this many tokens.",
    )
    """None: as many as fit into the context."""
    inline_thinking_tags: bool = option(Switch(), False)
    """Deliver reasoning as text between literal think tags."""
    enable_thinking: bool = option(Switch(), False, endpoint=Endpoint.SENT)
    """Deliver reasoning as ReasoningChunks, and ask a template that has the switch to think. The reply's
    ``reasoning_content`` holds the reasoning either way."""
    chat_template_kwargs: Mapping[str, Any] = option(Members(), factory=dict, endpoint=Endpoint.SENT)
    """Values for the chat template by name, such as ``reasoning_effort``; it gets those that it reads."""
    extras: str | None = option(Words(), extras=False)
    """JSON text: an object of options by these names, which win over the fields."""
    stop: Sequence[str] = option(
        Texts(), (), chat=(SAME,), ollama=SAME, endpoint=Endpoint.SENT, text="Stop before this text occurs."
    )
    """Searched in the text alone, not in reasoning."""
    frequency_penalty: float | None = _sampling(
        Number(-2.0, 2.0), text="Penalize tokens by how often they occurred, -2 to 2; 0 is off."
    )
    """Subtracted from a token's logit for each time it occurred in the last ``repeat_last_n``."""
    presence_penalty: float | None = _sampling(
        Number(-2.0, 2.0), text="Penalize tokens that occurred at all, -2 to 2; 0 is off."
    )
    """Subtracted from the logit of a token that occurred in the last ``repeat_last_n``."""
    repeat_last_n: int | None = _sampling(
        Whole(-1),
        endpoint="the reach of penalties",
        text="Apply penalties to the last N tokens; -1 is the whole context.",
    )
    """0 for none; None: 64."""
    logit_bias: Mapping[int, float] = _sampling(
        Biases(), factory=dict, extras=False, text="Add a bias to the logit of a token id."
    )
    tool_choice: str | None = option(Words(), endpoint=Endpoint.SENT)
    """auto, required, none, or the name of the function to call; None: auto."""
    regex_constraint: str | None = option(Words(), endpoint="a regular expression", constraint=True)
    """Regular expression that the whole answer matches."""
    grammar_constraint: str | None = option(Words(), endpoint="a grammar", constraint=True)
    """Grammar that the answer follows, in Lark's notation or llama.cpp's (GBNF)."""
    choices_constraint: Sequence[str] | None = option(
        Texts(may_be_empty=False), endpoint=Endpoint.SENT, constraint=True
    )
    """The answer is one of these texts."""
    audio_temperature: float | None = option(
        Number(0.0), chat=(SAME,), endpoint="the drawing of speech", text="Randomness of spoken audio, 0 or more."
    )
    """None: by the kind of speech."""
    audio_top_k: int | None = option(
        Whole(),
        chat=(SAME,),
        endpoint="the drawing of speech",
        text="Sample from this many of the likeliest audio codes; 0 is all.",
    )
    """None: by the kind of speech."""
    image_tokens: int | None = option(
        Whole(LEAST_IMAGE_TOKENS, MOST_IMAGE_TOKENS),
        endpoint="the size of pictures",
        task=True,
        heading="Prompt",
        text="Encode an image as at most this many tokens, 16 to 1024; 256 by default.",
    )
    image_tiles: bool = option(
        Switch(),
        False,
        endpoint="tiles of pictures",
        task=True,
        heading="Prompt",
        text="Split large images into up to ten tiles of 256 tokens, for small text; otherwise they are scaled down.",
    )
    """With a thumbnail beside the tiles."""
    adapters: Sequence[LoraAdapter] | None = option(Adapters(), endpoint="adapters", task=True, extras=False)
    """LoRA adapters that compute this answer, none when empty; None: those of the loaded model."""
    logprobs: bool = option(Switch(), False, chat=(SAME,), endpoint=Endpoint.SENT)
    """Report in Complete how likely each token was."""
    top_logprobs: int | None = option(
        Whole(0, MOST_LOGPROBS),
        chat=(SAME,),
        responses=SAME,
        endpoint=Endpoint.SENT,
        heading="Answer",
        text="Return log-probabilities of each token and N alternatives in JSON, 0 to 20.",
    )
    logprob_tokens: Sequence[int] = option(TokenIds(), (), endpoint="the likelihood of given tokens")
    """Instead report the log probabilities of these tokens at each place, in this order; see ``TokenLogprob``."""
    decision: str | None = option(Words(), endpoint="a decision's template")
    """JSON text: variables of the template with which a GGUF made for decisions asks (its own, named systemone). The
    prompt is what it makes of them, with the images of the messages."""
    prompt_logprobs: bool = option(Switch(), False, endpoint="the likelihood of the prompt")
    """Report the prompt's tokens too, where it is text alone; all of it is then computed."""
    forced_logprobs: bool = option(Switch(), True)
    """Compute also tokens that the constraint leaves no choice about; if not, they count as certain."""
    additional_properties: bool = option(Switch(), False, task=True)
    """Let objects have keys that the schema permits and does not name."""
    any_whitespace: bool = option(Switch(), False, task=True)
    """Allow any usual layout of JSON; otherwise it is on one line."""
    grounding: bool | str | None = option(
        SwitchOrText(),
        chat=(SAME,),
        responses=SAME,
        anthropic=SAME,
        ollama=SAME,
        task=True,
        heading="Structured output",
        text="Limit numbers and dates of the JSON to those of the text, or not.",
    )
    """Numbers, dates and strings with ``"x-from-text": true`` of a JSON schema are those of the user's messages, or of
    this text; see ``schemas.grounding``. None: as the task has it, else false."""
    complete_json: bool | None = option(Switch(), task=True)
    """End the JSON the shortest way before the tokens are used up. None: false for one answer, true for a line of a
    batch and for a task."""
    repairs: int | None = option(Whole())
    """How often an answer that does not conform is generated again, from 0; None: twice, and once at an endpoint."""
    repetition_detection: bool = option(
        Switch(),
        True,
        chat=(SAME,),
        endpoint=Endpoint.LEAP,
        text="Stop an answer that repeats itself (default) or not.",
    )
    """It ends where up to 200 tokens occur word for word again, hundreds of tokens long."""
    think_budget: int | None = option(
        Whole(),
        chat=(SAME, *BUDGETS),
        endpoint="a budget of reasoning",
        heading="Reasoning",
        text="Limit reasoning to this many tokens; 0 skips it.",
    )
    think_budget_message: str | None = option(
        Words(),
        chat=(SAME,),
        endpoint="a budget of reasoning",
        heading="Reasoning",
        text="Insert this text when reasoning reaches its budget.",
    )
    priority: int | None = option(Whole(-LARGEST), chat=(SAME,), responses=SAME, anthropic=SAME, line=False)
    """Which of several requests to a model goes first: the higher value; None: 0. See ``conversation.priority``. In a
    line of a batch the field is the user's own data."""

    typical_p: float | None = _sampling(
        Number(0.0, 1.0),
        text="Sample from tokens about as likely as expected, up to this total probability, 0 to 1; 1 is all.",
    )
    """Locally typical sampling, between ``top_k`` and ``top_p``."""
    xtc_probability: float | None = _sampling(
        Number(0.0, 1.0), text="Drop the likeliest tokens (XTC) with this probability, 0 to 1; 0 is off."
    )
    """Of the tokens above ``xtc_threshold`` all but the least likely are dropped, just before ``temperature``."""
    xtc_threshold: float | None = _sampling(
        Number(0.0, 1.0),
        text="Drop only tokens of at least this probability, 0 to 1; 0.1 by default, above 0.5 is off.",
    )
    ignore_eos: bool = _sampling(Switch(), False)
    """Tokens that end the answer are not sampled, and repetitions do not end it. It ends at ``max_tokens``, a stop
    token or text, or where its constraint permits nothing else."""
    min_tokens: int | None = _sampling(Whole())
    """The answer has at least so many tokens: before, nothing that ends it is sampled, and ``stop`` and repetitions do
    not end it. Only a constraint that permits nothing else does."""
    stop_token_ids: Sequence[int] = _sampling(TokenIds(), ())
    """Stop after any of these tokens; its text is kept."""

    def __post_init__(self) -> None:
        self._check_constraints()

    def __setattr__(self, name: str, value: object) -> None:
        """Set an option. Raises LeapOptionsError for one that is not there or a value outside its range."""
        row = GENERATION.get(name)
        if row is None:
            raise LeapOptionsError(name, f"there is no such option{suggestion(name, GENERATION)}")
        if value is not row.default:
            value = row.read(value)
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
        for name, row in GENERATION.items():
            row.read(getattr(self, name))
        self._check_constraints()

    def _check_constraints(self) -> None:
        constraints = [name for name in CONSTRAINTS if getattr(self, name) is not None]
        if len(constraints) > 1:
            raise LeapOptionsError(constraints[1], f"cannot be combined with {constraints[0]}")
        if self.max_tokens is not None and (self.min_tokens or 0) > self.max_tokens:
            raise LeapOptionsError("min_tokens", f"{self.min_tokens} is more than max_tokens ({self.max_tokens})")

    def with_extras(self) -> GenerationOptions:
        """These options with what ``extras`` says. Raises LeapOptionsError for what it cannot say."""
        return self if self.extras is None else replace(self, extras=None, **read_extras(GENERATION, self.extras))

    def with_defaults(self, defaults: SamplingDefaults) -> GenerationOptions:
        """A copy in which sampling options left as None take the given defaults."""
        missing = [f.name for f in fields(defaults) if getattr(self, f.name) is None]
        return replace(self, **{name: getattr(defaults, name) for name in missing})

    def to_json(self) -> dict[str, Any]:
        """Only what differs from the default. A parser object is written by its name."""
        value = {}
        for name, row in GENERATION.items():
            current = getattr(self, name)
            if current is not row.default and (written := row.kind.to_json(current)) != row.kind.to_json(row.default):
                value[name] = written
        return value

    @classmethod
    def from_json(cls, value: object, path: str = "options") -> GenerationOptions:
        """Read what ``to_json`` writes; an unknown name raises LeapOptionsError."""
        if not isinstance(value, dict):
            raise LeapOptionsError(path, "expected an object")
        options = dict(value)
        for name, given in options.items():
            if name not in GENERATION:
                raise LeapOptionsError(f"{path}.{name}", "there is no such option")
            options[name] = GENERATION[name].kind.from_json(f"{path}.{name}", given)
        return cls(**options)


GENERATION = rows_of(GenerationOptions)
CONSTRAINTS = tuple(name for name, row in GENERATION.items() if row.constraint)
"""Options of which at most one is given."""


@dataclass(frozen=True)
class SamplingDefaults:
    """A model's recommended sampling, from its manifest or the catalogue; None where it recommends nothing."""

    temperature: float | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    top_k: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            GENERATION[each.name].read(getattr(self, each.name))

    def over(self, other: SamplingDefaults) -> SamplingDefaults:
        """These, and where they say nothing the other's."""
        names = [f.name for f in fields(self)]
        return SamplingDefaults(**{n: v if (v := getattr(self, n)) is not None else getattr(other, n) for n in names})


def with_source(options: GenerationOptions, messages: Sequence[ChatMessage]) -> GenerationOptions:
    """The options with the text that ``grounding`` limits values to: that of the user and of tools."""
    if options.grounding is not True:
        return options
    return replace(options, grounding="\n".join(each.text for each in messages if each.role in ("user", "tool")))


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
