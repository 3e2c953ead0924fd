"""What is known of how one request went, in numbers and a few words around the place where its prompt departed from an
earlier one. Small, and never more of what was said than these words."""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import Any

from ..errors import LeapConstraintError, LeapError, LeapGenerationPromptExceedContextLengthError
from ..system.dataclass import dataclass

PROMPT_TOO_LONG, UNFIT = "prompt-too-long", "constraint"
"""What ``RequestFacts.failure`` says of a prompt that the context does not hold, and of an answer that does not fit."""


@dataclass(frozen=True)
class Departure:
    """A prompt that began like an earlier one. The first ``position`` tokens are the same; ``before`` are the words
    before that place, ``had`` those that follow in the earlier prompt, ``got`` those in this one. ``shared``: how many
    tokens after the place are in both. ``in_slots``: how many of the first ones were still in memory.

    ``message`` counts the messages of the prompt from 1 (0: not known), of which there are ``messages``; ``role`` is
    that of the message, ``tool`` the declared tool that the place is in. ``tools_had`` and ``tools_got`` are the names
    in order, where they differ. ``media``: a picture or a sound is at the place. ``other_adapter``: the earlier prompt
    was computed with other adapters. ``edited``: most of the rest of the message is in the earlier one too.
    ``ended``: one of the prompts ends at the place, so that nothing departs.
    """

    position: int
    shared: int = 0
    in_slots: int = 0
    before: str = ""
    had: str = ""
    got: str = ""
    message: int = 0
    messages: int = 0
    role: str = ""
    tool: str = ""
    tools_had: tuple[str, ...] = ()
    tools_got: tuple[str, ...] = ()
    edited: bool = False
    media: bool = False
    other_adapter: bool = False
    ended: bool = False

    @property
    def place(self) -> str:
        """Where it is, in words."""
        if self.tool:
            return f"tool {self.tool}"
        if self.role == "system":
            return "the system prompt"
        role = f" ({self.role})" if self.role else ""
        return f"message {self.message}{role}" if self.message else "the prompt"


@dataclass(frozen=True)
class RequestFacts:
    """``queued``: seconds until the first slot, without those in which another request read a common prefix, behind
    ``running`` requests that had one, ``waiting`` that waited
    before it, and ``ahead_tokens`` of prompts that were to be read. ``preempted`` times it gave its slot, and waited
    ``swapped`` seconds for another. ``reading``: seconds from the slot to the first token, ``writing`` from there on;
    ``masks`` of them went to the masks of a constraint. ``others``: the share of the time that threads waited
    for a processor, None where that is not known. ``loading``: seconds until the model was there. Answers
    that did not fit were made again ``repairs`` times, which took ``repairing`` seconds. ``searches``: for tools.
    ``trained_context``: the largest context that the model allows, 0 where that is not known. ``by_states``: its memory
    goes back only to states that were kept, as a recurrent or hybrid one does. ``failure``: why there is no answer,
    PROMPT_TOO_LONG, UNFIT, or the finish reason of one that was cut; "" for another reason, and where there is one.
    ``at_least``: the prompt was not counted to its end.
    """

    prompt_tokens: int = 0
    cached: int = 0
    answer_tokens: int = 0
    context_size: int = 0
    queued: float = 0.0
    running: int = 0
    waiting: int = 0
    ahead_tokens: int = 0
    level: str = ""
    preempted: int = 0
    swapped: float = 0.0
    reading: float = 0.0
    writing: float = 0.0
    masks: float = 0.0
    others: float | None = None
    loading: float = 0.0
    repairs: int = 0
    repairing: float = 0.0
    searches: int = 0
    trained_context: int = 0
    by_states: bool = False
    failure: str = ""
    at_least: bool = False
    departure: Departure | None = field(default=None)

    def to_json(self) -> dict[str, Any]:
        """The fields that say something."""
        value = _saying(asdict(self), RequestFacts())
        if self.departure is not None:
            value["departure"] = _saying(asdict(self.departure), Departure(-1))
        return value

    @staticmethod
    def from_json(value: dict[str, Any]) -> RequestFacts:
        """Read what ``to_json`` wrote; what another version wrote beside it is left out."""
        known = {name: each for name, each in value.items() if name in RequestFacts.__dataclass_fields__}
        departure = known.get("departure")
        if isinstance(departure, dict):
            fields = {name: each for name, each in departure.items() if name in Departure.__dataclass_fields__}
            lists = {name: tuple(fields[name]) for name in ("tools_had", "tools_got") if name in fields}
            known["departure"] = Departure(**fields | lists)
        return RequestFacts(**known)


def failed(error: LeapError) -> RequestFacts:
    """What is known of a request that ended with this error."""
    if isinstance(error, LeapGenerationPromptExceedContextLengthError):
        return RequestFacts(
            prompt_tokens=error.prompt_tokens,
            context_size=error.context_size,
            trained_context=error.trained,
            failure=PROMPT_TOO_LONG,
            at_least=error.at_least,
        )
    if isinstance(error, LeapConstraintError):
        return replace(error.facts or RequestFacts(), failure=error.cut_by or UNFIT)
    return getattr(error, "facts", None) or RequestFacts()


def _saying(values: dict[str, Any], plain: object) -> dict[str, Any]:
    values = {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}
    return {name: value for name, value in values.items() if value != getattr(plain, name)}
