"""Sound for tests."""

from __future__ import annotations

import io
from collections.abc import Sequence

from leap_core.conversation.media.wav import WavWriter


def wav_of(samples: Sequence[float], sample_rate: int) -> bytes:
    """A whole WAV file of 16-bit samples."""
    file = io.BytesIO()
    writer = WavWriter(file, sample_rate)
    writer.write(samples)
    writer.finish()
    return file.getvalue()
