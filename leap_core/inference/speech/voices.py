"""The voices LFM2.5-Audio was trained to speak with, and the system prompts that call them.

Other words are no other voice: the model falls silent at a voice it was not trained on.
"""

from __future__ import annotations

from ...errors import LeapOptionsError

VOICES = {
    "us-female": "Perform TTS. Use the US female voice.",
    "us-male": "Perform TTS. Use the US male voice.",
    "uk-female": "Perform TTS. Use the UK female voice.",
    "uk-male": "Perform TTS. Use the UK male voice.",
    "japanese": "Perform TTS in japanese.",
}
"""Name -> system prompt. The Japanese one is LFM2.5-Audio-JP's."""

DEFAULT_VOICE = "us-female"
CONVERSATION_PROMPT = "Respond with interleaved text and audio."
"""The system prompt of a spoken conversation."""


def voice_prompt(voice: str) -> str:
    """The system prompt of a voice. Raises LeapOptionsError, which lists the voices, for an unknown one."""
    prompt = VOICES.get(voice.lower())
    if prompt is None:
        raise LeapOptionsError("voice", f"there is no voice {voice!r}; there are {', '.join(VOICES)}")
    return prompt


def asks_to_speak(system_prompt: str) -> bool:
    """Whether a system prompt asks for sound at all."""
    return is_interleaved(system_prompt) or "perform tts" in system_prompt.lower()


def is_interleaved(system_prompt: str) -> bool:
    """Whether a system prompt asks for text and sound in turns."""
    return "interleaved" in system_prompt.lower()
