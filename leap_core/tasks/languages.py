"""Names of languages, as prompts call them: by their codes (ISO 639-1, some with a region), or by their names."""

from __future__ import annotations

import re

from ..errors import LeapOptionsError

LANGUAGES = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "ca": "Catalan",
    "cs": "Czech",
    "cy": "Welsh",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "et": "Estonian",
    "eu": "Basque",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "ga": "Irish",
    "gl": "Galician",
    "he": "Hebrew",
    "hi": "Hindi",
    "hr": "Croatian",
    "hu": "Hungarian",
    "hy": "Armenian",
    "id": "Indonesian",
    "is": "Icelandic",
    "it": "Italian",
    "ja": "Japanese",
    "ka": "Georgian",
    "kk": "Kazakh",
    "ko": "Korean",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "mk": "Macedonian",
    "ml": "Malayalam",
    "mr": "Marathi",
    "ms": "Malay",
    "nb": "Norwegian",
    "ne": "Nepali",
    "nl": "Dutch",
    "no": "Norwegian",
    "pa": "Punjabi",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sq": "Albanian",
    "sr": "Serbian",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "te": "Telugu",
    "th": "Thai",
    "tl": "Tagalog",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "uz": "Uzbek",
    "vi": "Vietnamese",
    "zh": "Chinese",
    "en-gb": "British English",
    "en-us": "American English",
    "pt-br": "Brazilian Portuguese",
    "zh-cn": "Simplified Chinese",
    "zh-hans": "Simplified Chinese",
    "zh-hant": "Traditional Chinese",
    "zh-hk": "Traditional Chinese",
    "zh-tw": "Traditional Chinese",
}
CODE = re.compile(r"(?![A-Z][a-z]+$)[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,4})*")
"""What is meant as a code; a capitalised word, such as Lao, is a name."""
REGION = re.compile(r"-([a-z]{2}|[0-9]{3})$")


def language_of(text: str, option: str = "to") -> str:
    """The language's name as prompts have it; of a known code with a region that is none of these, that of the code
    alone. Raises LeapOptionsError for a code that is none of these, and for what can be no name."""
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
