"""Answers in text, read aloud sentence by sentence: for a voice other than the one that a spoken conversation has."""

from __future__ import annotations

import re

from leap_core.messages import ChatMessage, ChatMessageRole
from leap_core.options import GenerationOptions
from leap_core.responses import AudioSample, Chunk, Complete, MessageResponse
from leap_core.runner.conversation import Conversation
from leap_core.runner.generator import Generator
from leap_core.runner.streams import PassingStream, Stream
from leap_core.speech.voices import voice_prompt

SENTENCE_END = re.compile(r"[.!?。！？…]+[\"')\]]*\s|\n")


class ReadAloud(PassingStream):
    """Passes an answer on, each of its sentences followed by its sound in ``voice``."""

    def __init__(self, stream: Stream, runner: Generator, voice: str, options: GenerationOptions) -> None:
        super().__init__(stream)
        self._runner, self._system, self._options = runner, voice_prompt(voice), options
        self._unread = ""
        self._reading: Stream | None = None
        self._end: Complete | None = None
        self._is_stopped = False

    def __next__(self) -> MessageResponse:
        while self._reading is None:
            if self._end is not None:
                end, self._end = self._end, None
                return end
            response = super().__next__()
            if isinstance(response, Complete):
                self._end = response
                self._read(len(self._unread))
                continue
            if isinstance(response, Chunk):
                self._unread += response.text
                ends = list(SENTENCE_END.finditer(self._unread))
                if ends:
                    self._read(ends[-1].end())
            return response
        return self._sound()

    def stop(self) -> None:
        self._is_stopped = True
        super().stop()
        reading = self._reading
        if reading is not None:
            reading.stop()

    def close(self) -> None:
        if self._reading is not None:
            self._reading.close()
        super().close()

    def _read(self, count: int) -> None:
        sentence, self._unread = self._unread[:count].strip(), self._unread[count:]
        if sentence and not self._is_stopped:
            reading = Conversation(self._runner, [ChatMessage(ChatMessageRole.SYSTEM, self._system)])
            self._reading = reading.generate_response(sentence, self._options)
            if self._is_stopped:  # meanwhile, by another thread
                self._reading.stop()

    def _sound(self) -> MessageResponse:
        """The next piece of sound, or what follows it."""
        reading = self._reading
        while reading is not None:
            response = reading.__next__()
            if isinstance(response, AudioSample):
                return response
            if isinstance(response, Complete):
                self._reading = None
                reading.close()
                break
        return self.__next__()
