"""What a job's model says aloud: into a file, whole or not at all. It is not kept among the job's output."""

from __future__ import annotations

from leap_core.json_fields import JsonObject
from dataclasses import replace
from pathlib import Path

from leap_core.errors import LeapUnsupportedMediaError
from leap_core.messages import Speech
from leap_core.responses import AudioSample, Complete, GenerationFinishReason
from leap_core.runner.contract import ModelRunner
from leap_core.runner.generator import require_voice
from leap_core.speech.spoken_file import SpokenFile


UNHEARD = "the model spoke, and no file was asked for what it says"


class JobSpeech:
    """The speech of one generation, into ``path`` if there is one. Raises LeapUnsupportedMediaError when the model of
    a job that wants speech has no voice."""

    def __init__(self, path: str | None, runner: ModelRunner) -> None:
        if path is not None:
            require_voice(runner)
        self._file = SpokenFile(Path(path)) if path is not None else None
        self._heard = False
        self.result: JsonObject = {}
        """What the job's result says of the speech."""

    def write(self, sample: AudioSample) -> None:
        """Add a piece."""
        self._heard = True
        if self._file is not None:
            self._file.write(sample)

    def discard_unless(self, complete: Complete | None) -> None:
        """Leave no file of an answer that failed or was stopped."""
        unfinished = (GenerationFinishReason.INTERRUPTED, GenerationFinishReason.ERROR)
        if self._file is not None and (complete is None or complete.finish_reason in unfinished):
            self._file.discard()

    def finish(self, complete: Complete) -> Complete:
        """Put the file in its place; the answer without the sound, which is there."""
        if self._file is not None and complete.finish_reason is not GenerationFinishReason.INTERRUPTED:
            if not self._file.finish():
                raise LeapUnsupportedMediaError(
                    f"the model did not speak, so {self._file.path} is not written",
                    hint="its system prompt makes it speak",
                )
            self.result = {"speech": {"file": str(self._file.path), "seconds": round(self._file.seconds, 3)}}
        warnings = complete.warnings
        if self._heard and self._file is None:
            warnings = (*warnings, UNHEARD)
        message = complete.full_message
        content = tuple(part for part in message.content if not isinstance(part, Speech))
        return replace(complete, full_message=replace(message, content=content), warnings=warnings)
