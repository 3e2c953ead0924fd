"""``leap talk`` over devices that are no hardware: PulseAudio's null sinks, ALSA and PortAudio in between, and the
miniature speech model. Prints how many conversations were answered by the tone that belongs to them, how soon
interruptions stop an answer, and what a device that is removed does.

    python scripts/talk_over_devices.py [--conversations 20] [--interruptions 10]

Needs the programs pulseaudio, pactl, pacat and parec, PortAudio with ALSA's plugin for PulseAudio, and sounddevice.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from leap_core.conversation.sessions import SessionStore
from leap_core.testing.miniature_ears import HISS, TONE_OF, write_hearing_miniature
from leap_core.testing.miniature_speech import TONES
from leap_core.testing.sounds import clip_of

PROGRAMS = ("pulseaudio", "pactl", "pacat", "parec")
MICROPHONE, LOUDSPEAKER = "mic", "speaker"
PLAYED, HEARD = 24_000, 16_000
BLOCK = 480
LOUD = 0.05
ATTEMPTS, DRONE_SECONDS = 3, 2.5
"""The drone sounds longer than any other answer; where it does not, a busy machine has chopped the question."""
SURROUNDING = 0.35
"""Seconds of a room's hiss before and after a question, more than an utterance keeps: a null sink's silence is perfect,
and the miniature mistakes notes in that."""
TOLERANCE = 20
"""Hz by which a tone may be off that the machine has chopped; the tones are 150 Hz apart and more."""
ALSA = "pcm.!default { type pulse }\nctl.!default { type pulse }\n"


@dataclass
class VirtualDevices:
    """A PulseAudio of its own, whose sink ``mic`` is heard by the default microphone, and whose sink ``speaker`` is the
    default loudspeaker."""

    directory: Path
    variables: Mapping[str, str]
    modules: dict[str, str] = field(default_factory=dict)

    def control(self, *words: str) -> str:
        """Run pactl; what it says."""
        done = subprocess.run(["pactl", *words], env=dict(self.variables), capture_output=True, text=True, timeout=20)
        if done.returncode:
            raise RuntimeError(f"pactl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def remove(self, sink: str) -> None:
        """Take a device away."""
        self.control("unload-module", self.modules[sink])

    def say(self, *notes: str, length: float = 0.6) -> None:
        """Play notes into the microphone, until they have been heard."""
        samples = clip_of(*notes, length=length, gap=SURROUNDING).play(noise=HISS)
        command = ["pacat", "--playback", "-d", MICROPHONE, "--format=float32le", f"--rate={HEARD}", "--channels=1"]
        subprocess.run([*command, "--latency-msec=100"], input=samples.tobytes(), env=dict(self.variables), timeout=60)


@contextmanager
def virtual_devices(directory: Path) -> Iterator[VirtualDevices]:
    """Start PulseAudio in this directory, with both sinks."""
    run = directory / "run"
    run.mkdir(mode=0o700)
    (directory / ".asoundrc").write_text(ALSA)
    socket = run / "native"
    variables = {
        **os.environ,
        "HOME": str(directory),
        "XDG_RUNTIME_DIR": str(run),
        "PULSE_RUNTIME_PATH": str(run),
        "PULSE_SERVER": f"unix:{socket}",
    }
    command = ["pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--disallow-exit", "--use-pid-file=no"]
    server = subprocess.Popen(
        [*command, "-L", f"module-native-protocol-unix socket={socket} auth-anonymous=1"],
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        devices = VirtualDevices(directory, variables)
        wait_for(lambda: socket.exists(), "PulseAudio's socket")
        for sink in (MICROPHONE, LOUDSPEAKER):
            devices.modules[sink] = devices.control("load-module", "module-null-sink", f"sink_name={sink}")
        devices.control("set-default-source", f"{MICROPHONE}.monitor")
        devices.control("set-default-sink", LOUDSPEAKER)
        yield devices
    finally:
        server.terminate()
        server.wait(20)


class Monitor:
    """Listens to what a sink plays, block by block of 20 ms, with the time at which each came."""

    def __init__(self, devices: VirtualDevices, sink: str) -> None:
        command = ["parec", "-d", f"{sink}.monitor", "--format=float32le", f"--rate={PLAYED}", "--channels=1"]
        self._process = subprocess.Popen(
            [*command, "--latency-msec=20"], env=dict(devices.variables), stdout=subprocess.PIPE
        )
        self.blocks: list[tuple[float, np.ndarray[Any, Any]]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while len(data := self._process.stdout.read(BLOCK * 4)) == BLOCK * 4:
            self.blocks.append((time.monotonic(), np.frombuffer(data, np.float32)))

    def since(self, moment: float) -> list[tuple[float, np.ndarray[Any, Any]]]:
        """What came after a moment."""
        return [block for block in list(self.blocks) if block[0] > moment]

    def loud_since(self, moment: float) -> list[float]:
        """The times at which something sounded."""
        return [at for at, block in self.since(moment) if np.abs(block).max() > LOUD]

    def hertz_since(self, moment: float) -> int:
        """The loudest frequency of all that sounded; 0 for silence."""
        loud = [block for _, block in self.since(moment) if np.abs(block).max() > LOUD]
        if not loud:
            return 0
        sound = np.concatenate(loud)
        spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound))))
        return round(float(spectrum.argmax()) * PLAYED / len(sound))


class Talker:
    """``leap talk`` in a process of its own, without a keyboard."""

    def __init__(self, devices: VirtualDevices, model: Path, home: Path, *arguments: str) -> None:
        self.home = home
        variables = {**devices.variables, "LEAP_HOME": str(home), "LEAP_TRY_MODELS": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "leap_cli", "talk", "-m", str(model), *arguments],
            env=variables,
            cwd=devices.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()
        wait_for(lambda: self.said("speak, and it answers") or self.process.poll() is not None, "leap talk", 120)

    def _read(self, stream: IO[str] | None) -> None:
        assert stream is not None
        with stream:
            self.lines.extend(iter(stream.readline, ""))

    def said(self, text: str) -> int:
        """How many lines have this in them."""
        return sum(text in line for line in list(self.lines))

    def leave(self, seconds: float = 60) -> int:
        """Ctrl-C, unless it ended by itself; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.ended(seconds)

    def ended(self, seconds: float = 60) -> int:
        """The exit code."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        for reader in self._readers:
            reader.join()
        return code

    def roles(self) -> list[str]:
        """Who spoke in the session, message by message."""
        with SessionStore(self.home / "leap.db") as store:
            session = store.latest()
            return [] if session is None else [message.role.value for message in store.history(session.id)]


def converse(devices: VirtualDevices, talker: Talker, monitor: Monitor, note: str) -> tuple[bool, float]:
    """Ask by a note and wait for the answer; whether it is the tone for it, and the seconds until it sounds."""
    begun, heard = time.monotonic(), talker.said("heard ")
    devices.say(note)
    asked = time.monotonic() - SURROUNDING
    wait_for(lambda: bool(monitor.loud_since(begun)), f"the answer to {note}", 30)
    first = monitor.loud_since(begun)[0]
    wait_for(lambda: time.monotonic() - monitor.loud_since(begun)[-1] > 0.5, "the end of the answer", 30)
    hertz, utterances = monitor.hertz_since(begun), talker.said("heard ") - heard
    is_right = abs(hertz - TONES[TONE_OF[note]]) <= TOLERANCE and utterances == 1
    if not is_right:
        print(f"wrong: {note} was heard as {utterances} utterances and answered by {hertz} Hz")
    return is_right, first - asked


def interrupt(devices: VirtualDevices, talker: Talker, monitor: Monitor, microphone: Monitor, note: str) -> float:
    """Ask for the drone, which does not end, and speak into it; the seconds until it stops."""
    for _ in range(ATTEMPTS):
        heard = talker.said("heard ")
        devices.say("beep")
        wait_for(lambda heard=heard: talker.said("heard ") > heard, "the question", 30)
        time.sleep(DRONE_SECONDS)
        if len(monitor.loud_since(time.monotonic() - 0.5)) > 20:
            break
    heard = talker.said("heard ")
    spoke = time.monotonic()
    devices.say(note)
    wait_for(lambda: talker.said("heard ") > heard, "what was said into the drone", 30)
    wait_for(lambda: _pause_after(monitor, spoke) is not None, "the drone's end", 30)
    stopped = _pause_after(monitor, spoke)
    assert stopped is not None
    return stopped - microphone.loud_since(spoke)[0]


def _pause_after(monitor: Monitor, moment: float) -> float | None:
    """The last sound before the first pause of 0.3 s."""
    loud = [moment, *monitor.loud_since(moment), time.monotonic()]
    return next((before for before, after in zip(loud[1:], loud[2:], strict=False) if after - before > 0.3), None)


def wait_for(is_so: Any, what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {seconds:g} s")
        time.sleep(0.01)


def missing() -> str | None:
    """What this machine lacks for it."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"there is no {lacking[0]}" if lacking else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--conversations", type=int, default=20)
    parser.add_argument("--interruptions", type=int, default=10)
    chosen = parser.parse_args(arguments)
    if (reason := missing()) is not None:
        sys.exit(reason)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = write_hearing_miniature(directory / "model")
        devices = stack.enter_context(virtual_devices(directory))
        monitor, microphone = Monitor(devices, LOUDSPEAKER), Monitor(devices, MICROPHONE)
        stack.callback(monitor.close)
        stack.callback(microphone.close)
        notes = [note for note in TONE_OF if note != "beep"]

        talker = Talker(devices, model, directory / "home")
        answers = [converse(devices, talker, monitor, notes[n % len(notes)]) for n in range(chosen.conversations)]
        talker.leave()
        waits = sorted(seconds for _, seconds in answers)
        print(
            f"{sum(right for right, _ in answers)} of {len(answers)} conversations answered by the tone that was asked"
        )
        print(f"the answer sounds {waits[len(waits) // 2]:.2f} s after the question (median), {waits[-1]:.2f} at most")
        users = talker.roles().count("user")
        print(f"{users} utterances in the session, {talker.said('heard ')} heard")

        talker = Talker(devices, model, directory / "home-2", "-s", "Hum.")
        stops = sorted(
            interrupt(devices, talker, monitor, microphone, notes[n % 4]) for n in range(chosen.interruptions)
        )
        middle = stops[len(stops) // 2]
        print(f"{len(stops)} interruptions: stopped after {middle:.3f} s (median), {stops[-1]:.3f} at most")

        heard = talker.said("heard ")
        devices.say("beep")
        wait_for(lambda: talker.said("heard ") == heard + 1, "the last question")
        devices.remove(MICROPHONE)
        devices.remove(LOUDSPEAKER)
        code = talker.ended()
        print(f"both devices removed while it speaks: exit code {code}, {talker.lines[-1].strip()}")
        print(f"{talker.roles().count('user')} utterances in the session, {heard + 1} heard")
    return 0


if __name__ == "__main__":
    sys.exit(main())
