"""``leap talk`` over PulseAudio and PortAudio without hardware: the short form of scripts/talk_over_devices.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
import talk_over_devices as over  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[over.VirtualDevices]:
    if (reason := over.missing()) is not None:
        pytest.skip(reason)
    try:
        import sounddevice  # noqa: F401
    except (ImportError, OSError) as error:
        pytest.skip(str(error))
    home = tmp_path / "pulse"
    home.mkdir()
    with over.virtual_devices(home) as devices:
        yield devices


def test_a_talk_over_devices(devices: over.VirtualDevices, hearing_miniature: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        monitor = over.Monitor(devices, over.LOUDSPEAKER)
        microphone = over.Monitor(devices, over.MICROPHONE)
        stack.callback(monitor.close)
        stack.callback(microphone.close)
        talker = over.Talker(devices, hearing_miniature, tmp_path / "home", "-s", "Hum.")
        stack.callback(talker.process.kill)

        tries = (over.converse(devices, talker, monitor, "mi")[0] for _ in range(over.ATTEMPTS))
        assert any(tries), talker.lines
        # The drone has no end of its own; how soon it stops is measured by the script, on a quiet machine.
        over.interrupt(devices, talker, monitor, microphone, "do")
        asked = talker.said("heard ")

        devices.say("beep")
        over.wait_for(lambda: talker.said("heard ") > asked, "the last question")
        devices.remove(over.LOUDSPEAKER)
        devices.remove(over.MICROPHONE)
        assert talker.ended() == 1
        assert talker.said("is gone") == 1 and talker.said("Traceback") == 0, talker.lines
        assert talker.roles().count("user") > asked, "nothing of it is lost"
