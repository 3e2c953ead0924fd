"""Translation, piece by piece where a text is too long for the model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..conversation.messages import ChatMessage
from ..conversation.options import GenerationOptions
from ..errors import LeapOptionsError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .task import Prompt, Task, TaskAnswer, TaskModel, pieces_that_fit, text_of

_NAMES = """
ar: Arabic, bg: Bulgarian, bn: Bengali, ca: Catalan, cs: Czech, cy: Welsh, da: Danish, de: German, el: Greek,
en: English, es: Spanish, et: Estonian, eu: Basque, fa: Persian, fi: Finnish, fr: French, ga: Irish, gl: Galician,
he: Hebrew, hi: Hindi, hr: Croatian, hu: Hungarian, hy: Armenian, id: Indonesian, is: Icelandic, it: Italian,
ja: Japanese, ka: Georgian, kk: Kazakh, ko: Korean, lt: Lithuanian, lv: Latvian, mk: Macedonian, ml: Malayalam,
mr: Marathi, ms: Malay, nb: Norwegian, ne: Nepali, nl: Dutch, no: Norwegian, pa: Punjabi, pl: Polish,
pt: Portuguese, ro: Romanian, ru: Russian, sk: Slovak, sl: Slovenian, sq: Albanian, sr: Serbian, sv: Swedish,
sw: Swahili, ta: Tamil, te: Telugu, th: Thai, tl: Tagalog, tr: Turkish, uk: Ukrainian, ur: Urdu, uz: Uzbek,
vi: Vietnamese, zh: Chinese, en-gb: British English, en-us: American English, pt-br: Brazilian Portuguese,
zh-cn: Simplified Chinese, zh-hans: Simplified Chinese, zh-hant: Traditional Chinese, zh-hk: Traditional Chinese,
zh-tw: Traditional Chinese
"""
LANGUAGES = dict(each.strip().split(": ") for each in _NAMES.split(","))
CODE = re.compile(r"(?![A-Z][a-z]+$)[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,4})*")
"""What is meant as a code; a capitalised word, such as Lao, is a name."""
REGION = re.compile(r"-([a-z]{2}|[0-9]{3})$")


def language_of(text: str, option: str = "to") -> str:
    """The language's name as prompts have it; of a known code with a region that is not one of these, that of the code
    alone. Raises LeapOptionsError for a code that is not one of these, and for what can be no name."""
    name = " ".join(text.split())
    code = name.lower().replace("_", "-")
    known = LANGUAGES.get(code) or LANGUAGES.get(REGION.sub("", code))
    if known is not None:
        return known
    if CODE.fullmatch(name) or not name or not all(char.isalpha() or char in " -'()" for char in name):
        raise LeapOptionsError(
            option, f"{text!r} is no language that leap knows; write its name, such as Japanese, or a code such as ja"
        )
    return name if name[0].isupper() else name[0].upper() + name[1:]


@dataclass(frozen=True)
class Translate(Task):
    """``to`` and ``source`` are codes or names of languages; without ``source`` the model finds out. Raises
    LeapOptionsError for what is no language."""

    to: str
    source: str | None = None

    name = "translate"
    places = frozenset({"text", "language", "from"})

    def __post_init__(self) -> None:
        if self.source is not None and language_of(self.source, "from") == language_of(self.to):
            raise LeapOptionsError("from", f"{language_of(self.to)} is the language of the text and of its translation")
        language_of(self.to)

    def to_json(self) -> JsonObject:
        return {"task": self.name, "to": self.to, **({"from": self.source} if self.source is not None else {})}

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        options = self._options(model)
        return ((self._messages(model, piece.strip()), options) for piece in self._pieces(model, message))

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        options = self._options(model)
        pieces = list(self._pieces(model, message))
        translated = ""
        for number, piece in enumerate(pieces, 1):
            if len(pieces) > 1:
                model.tell(f"piece {number} of {len(pieces)}")
            translated += model.stripped_text(self._messages(model, piece.strip()), options)
            if number < len(pieces):  # the white space that was between them
                space = piece[len(piece.rstrip()) :] or " "
                translated += space
                model.put(space)
        return TaskAnswer(translated)

    def _options(self, model: TaskModel) -> GenerationOptions:
        languages = [language_of(self.to), *([language_of(self.source, "from")] if self.source is not None else [])]
        only = model.wording.only
        if only is not None and not set(languages) <= set(only):
            raise LeapOptionsError("to", f"{model.runner.model_id} knows {' and '.join(only)} only")
        return model.options()

    def _messages(self, model: TaskModel, text: str) -> list[ChatMessage]:
        source = f" from {language_of(self.source, 'from')}" if self.source is not None else ""
        return model.wording.messages({"language": language_of(self.to), "from": source, "text": text})

    def _pieces(self, model: TaskModel, message: ChatMessage) -> Iterator[str]:
        text = text_of(message).strip()
        pieces = pieces_that_fit(text, lambda piece: model.fits(self._messages(model, piece)), model.most_characters)
        whole = ""
        for piece in pieces:  # a piece of white space alone goes with the one before it
            if piece.strip() and whole.strip():
                yield whole
                whole = piece
            else:
                whole += piece
        yield whole
