"""One talk from its beginning to its end: its audio input and output, and where it is kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from leap_core.conversation.conversation import Overflow
from leap_core.conversation.generator import require_voice
from leap_core.conversation.media.audio import RATE, as_wav, at_model_rate, naming_source, samples_of_wav
from leap_core.conversation.messages import Audio, ChatMessage, ChatMessageRole
from leap_core.conversation.talk.talk import Talk, TalkSettings
from leap_core.errors import LeapError, LeapSerializationError
from leap_core.inference.speech.spoken_file import SpokenFile
from leap_core.inference.speech.voices import CONVERSATION_PROMPT

from ..answers.sound import SoundSink, StandardOutput
from ..chat.dialogue import Dialogue, FullContext
from ..chat.terminal import HISTORY_FILE, note_saved, talk_at_terminal
from ..framework.environment import Environment
from ..framework.output import Output
from ..input.files import read_bytes, source_name
from ..options.conversation import TalkOptions
from ..options.tools import Tools
from .devices import INSTEAD, DeviceRecording, SoundDevices, SoundFiles
from .devices import list_devices as found_devices
from .keyboard import ShownLine, SpokenDialogue

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from leap_core.conversation.options import GenerationOptions
    from leap_core.conversation.runner import ModelRunner
    from leap_core.conversation.session_recorder import SessionRecorder

COLUMNS = ("number", "name", "system", "input", "output", "default")
BY_VOICE = "speak, and it answers when you pause; Ctrl-C stops an answer"
BY_KEY = "the space bar begins and ends what you say; Ctrl-C stops an answer"


def list_devices(output: Output) -> None:
    """Show what can be named by --device."""
    devices = found_devices()
    if not devices:
        raise LeapError("there is neither microphone nor loudspeaker", hint=f"connect one, or {INSTEAD}")
    output.records(devices, COLUMNS, name="number")


def check_model(runner: ModelRunner) -> None:
    """Raises LeapUnsupportedMediaError for a model without audio input or without speech output."""
    from leap_core.conversation.media.audio import wav_of_integers

    require_voice(runner)
    import numpy as np

    sound = Audio(wav_of_integers(np.zeros(RATE, np.float32)))
    runner.get_prompt_tokens_size([ChatMessage(ChatMessageRole.USER, [sound])])


class TalkSession:
    """A talk that has what it needs before a model is loaded for it; ``close`` puts its files in their places. Raises
    LeapError for a file, a microphone or a loudspeaker that is missing."""

    def __init__(self, env: Environment, talking: TalkOptions) -> None:
        self._env, self._options = env, talking
        self._has_keyboard = talking.sound is None and env.has_editor
        place = env
        if talking.answers.is_stdout:
            place = replace(env, stdout=env.stderr, stdout_is_terminal=env.stderr_is_terminal)
        self._output = Output(place)
        if talking.push and not self._has_keyboard:
            raise LeapSerializationError("--push-to-talk needs a terminal whose keys can be read")
        self._wake: Callable[[], object] = lambda: None
        self._talk = Talk(
            TalkSettings(talking.pause, talking.push, talking.interrupt, hears_itself=talking.sound is None),
            on_event=lambda _event: self._wake(),
        )
        self._recording, self._sink = self._open_files()
        if talking.sound is not None:
            sound = _read_sound(talking.sound, env)
            self._world: SoundFiles | SoundDevices = SoundFiles(
                self._talk, sound, self._sink, self._recording, fast=talking.fast
            )
        else:
            microphone, loudspeaker = talking.microphone, talking.loudspeaker
            self._world = SoundDevices(
                self._talk, microphone, loudspeaker, self._recording, on_lost=lambda: self._wake()
            )

    def hold(
        self,
        recorder: SessionRecorder,
        runner: ModelRunner,
        options: GenerationOptions,
        load_model: Callable[[str], ModelRunner],
    ) -> None:
        """Talk until the user leaves, the file is over, or a device is gone, which is an error."""
        talking, env, output, talk = self._options, self._env, self._output, self._talk
        system = talking.system
        if system is None and talking.voice is None and recorder.session is None:
            system = CONVERSATION_PROMPT
        answering: Callable[[], AbstractContextManager[None]] = nullcontext
        if talking.push:
            from .keyboard import pushing_while_answering

            answering = partial(pushing_while_answering, talk)
        shown = ShownLine(talk, output, talking.voice, stats=talking.stats, answering=answering)
        conversation = recorder.conversation(runner, system)
        full = FullContext(env, Overflow.OLDEST)
        dialogue = Dialogue(conversation, options, Tools(), recorder, shown, full)
        spoken = SpokenDialogue(dialogue, talk, output)
        try:
            with self._world as world:
                if talking.sound is None:
                    output.note(f"{runner.model_id}; {BY_KEY if talking.push else BY_VOICE}")
                if self._has_keyboard:
                    self._type_and_speak(spoken, load_model)
                else:
                    self._speak(spoken, shown)
                if world.failure is not None:
                    raise world.failure
        finally:
            dialogue.conversation.model_runner.unload()
            if talking.sound is None:
                note_saved(dialogue, output, "talk")

    def close(self) -> None:
        """Put the files in their places."""
        self._talk.close()
        with ExitStack() as files:
            for file in (self._recording, self._sink):
                if file is not None:
                    files.callback(file.finish)

    def _type_and_speak(self, spoken: SpokenDialogue, load_model: Callable[[str], ModelRunner]) -> None:
        from .keyboard import TalkEditor

        dialogue, env = spoken.dialogue, self._env
        history = env.directories.data / HISTORY_FILE if dialogue.log.is_open else None
        editor = TalkEditor(env, history, spoken, push=self._options.push)
        self._wake = editor.wake
        talk_at_terminal(dialogue, env, self._output, load_model, typing=editor)

    def _speak(self, spoken: SpokenDialogue, shown: ShownLine) -> None:
        """Answer what is said. An error ends a talk over files; with devices it is shown, and the talk continues."""
        while (utterance := self._talk.next_utterance()) is not None:
            try:
                spoken.answer(utterance)
            except LeapError as error:
                if self._options.sound is not None:
                    raise
                self._output.error(error.message, error.hint)
            if shown.was_stopped:
                raise KeyboardInterrupt

    def _open_files(self) -> tuple[DeviceRecording | None, SoundSink | None]:
        talking, cwd = self._options, self._env.cwd
        recording = None if talking.recording.file is None else DeviceRecording(cwd / talking.recording.file)
        if talking.answers.is_stdout:
            return recording, StandardOutput(self._env)
        return recording, None if talking.answers.file is None else SpokenFile(cwd / talking.answers.file)


def _read_sound(name: str, env: Environment) -> NDArray[float32]:
    with naming_source(source_name(name)):
        converted = as_wav(read_bytes(name, env))
        return at_model_rate(*samples_of_wav(converted.data))
