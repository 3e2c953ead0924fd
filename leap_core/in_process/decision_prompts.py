"""A GGUF that was made for decisions, as llama.cpp's ``/v1/systemone`` asks it: by its own template named systemone.

Its kind is in ``<architecture>.decision.type``, its temperatures in ``<architecture>.decision.temperature.…``, by kind
of question (``choice``) and number of options (``choice.3_5``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from ..chat_format.chat_template import ChatTemplate
from ..errors import LeapModelLoadingError, LeapOptionsError
from ..llama.model import LlamaModel
from ..messages import ChatMessage, ChatMessageContent, Image
from ..runner.generator import DecisionModel

TEMPLATE = "systemone"
TYPES = ("choice", "score", "noul")
SIZES = ("2", "3_5", "6_10", "11")
"""Groups of numbers of options: up to two, and so on."""


def decision_model_of(model: LlamaModel, kind: str) -> DecisionModel:
    """What a file that was made for decisions of this ``kind`` is, without its fingerprint. Raises
    LeapModelLoadingError for one that llama.cpp would refuse: it has no template, or temperatures that are none."""
    if model.template_named(TEMPLATE) is None:
        raise LeapModelLoadingError(
            f"{model.path.name} is made for decisions and has no template {TEMPLATE}", hint="download it again"
        )
    names = [name for each in TYPES for name in (each, *(f"{each}.{size}" for size in SIZES))]
    read = {name: model.metadata(f"ARCH.decision.temperature.{name}") for name in names}
    temperatures = {name: _temperature(name, text, model) for name, text in read.items() if text is not None}
    return DecisionModel(kind, temperatures)


class DecisionPrompts:
    """The prompts of a file's template for decisions, which is compiled when it is first wanted."""

    def __init__(self, model: LlamaModel) -> None:
        self._model = model
        self._template: ChatTemplate | None = None

    def pieces(self, variables: str, messages: Sequence[ChatMessage]) -> list[str | ChatMessageContent]:
        """The prompt in pieces, with the pictures of the messages. Raises LeapOptionsError where the model has no such
        template."""
        if self._template is None:
            source = self._model.template_named(TEMPLATE)
            if source is None:
                raise LeapOptionsError("decision", f"{self._model.path.name} is not made for decisions")
            special = self._model.special_tokens
            self._template = ChatTemplate(source, bos_text="", eos_text="", special_texts=special)
        pictures = [part for message in messages for part in message.content if isinstance(part, Image)]
        return self._template.render_values(json.loads(variables), pictures)


def _temperature(name: str, text: str, model: LlamaModel) -> float:
    value = 0.0
    with suppress(ValueError):
        value = float(text)
    if not value > 0.0:
        raise LeapModelLoadingError(f"{model.path.name} has the temperature {text} of {name}; it must be above 0")
    return value
