"""Images of common formats, decoded strictly: a file that is cut short, too large or misshapen is refused by name.

Pillow decodes. llama.cpp's own decoder is not used, because it shows a truncated JPEG with a grey rest, drops
transparency, ignores the orientation that cameras write, and reads a 16000 x 16000 picture of a few kB into 1.5 GB.
"""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import LeapSerializationError
from .audio import JPEG_START, Converted

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_BYTES = 20 * 1024 * 1024
MOST_PIXELS = 64_000_000
MOST_RATIO = 10
"""The longer side is at most this many times the shorter one: a thin strip costs more than the largest picture."""
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "WEBP", "TIFF", "PPM", "AVIF")
"""Pillow's names of what is read; the many rarer decoders stay closed to data from outside."""
NAMES = "JPEG, PNG, GIF, BMP, WebP, TIFF, PPM and AVIF"
JPEG_QUALITY = 95
MOST_CONVERTED_PIXELS = 16_000_000
"""More than any model looks at; as JPEG it stays well below MOST_BYTES."""

ORIENTATION = 0x0112
"""EXIF's tag."""
START_OF_SCAN, COMMENT, ADOBE = 0xDA, 0xFE, 0xEE
"""Markers of a JPEG's segments."""
ROWS = 64
"""This many rows of a picture are scaled in one go."""
MOST_AT_ONCE = 2
"""Pictures that are decoded at once: each may take 300 MB."""


class _Quiet:
    """The filters of warnings belong to the whole process: the first of several pictures silences them, and the last
    brings them back."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._entered = 0
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._guard:
            if not self._entered:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
            self._entered += 1

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._entered -= 1
            if not self._entered:
                self._filters.__exit__(None, None, None)


_quiet = _Quiet()
_turns = threading.BoundedSemaphore(MOST_AT_ONCE)


def decode_image(data: bytes) -> Image:
    """The picture in RGB, upright, with transparency laid on white; of an animation the first frame.

    Raises LeapSerializationError for what is no picture, is damaged or cut short, has more than MOST_BYTES or
    MOST_PIXELS, or whose sides differ by more than MOST_RATIO.
    """
    if not data:
        raise LeapSerializationError("the picture is empty (no bytes)")
    if len(data) > MOST_BYTES:
        raise LeapSerializationError(
            f"the picture has {len(data) / 1024**2:.0f} MiB; at most {MOST_BYTES // 1024**2} MiB are read",
            hint="save it smaller",
        )
    with _reading():
        from PIL import Image as images
        from PIL import ImageOps, UnidentifiedImageError

        try:
            image = images.open(io.BytesIO(data), formats=FORMATS)
        except images.DecompressionBombError:
            raise LeapSerializationError(f"the picture has more than {MOST_PIXELS:,} pixels") from None
        except UnidentifiedImageError:
            raise LeapSerializationError(
                f"not a picture, or its header is damaged ({NAMES} are read)", hint="convert it first"
            ) from None
        check_size(*image.size)
        image.load()
        return _as_rgb(ImageOps.exif_transpose(image))


def check_size(width: int, height: int) -> None:
    """Refuse pictures that are too large or too thin, by their sizes in pixels."""
    if width < 1 or height < 1:
        raise LeapSerializationError(f"the picture is {width} x {height} pixels")
    if width * height > MOST_PIXELS:
        raise LeapSerializationError(
            f"the picture has {width} x {height} pixels; at most {MOST_PIXELS:,} are read", hint="save it smaller"
        )
    if max(width, height) > MOST_RATIO * min(width, height):
        raise LeapSerializationError(
            f"the picture is {width} x {height} pixels, thinner than 1:{MOST_RATIO}", hint="crop it or add a border"
        )


def encode_jpeg(image: Image, quality: int = JPEG_QUALITY) -> bytes:
    """A Pillow image of any mode as JPEG bytes; ``quality`` 1 to 100."""
    if not isinstance(quality, int) or not 1 <= quality <= 100:
        raise LeapSerializationError(f"the JPEG quality {quality!r} is not a whole number from 1 to 100")
    check_size(*image.size)
    with _reading():
        output = io.BytesIO()
        _as_rgb(image).save(output, "JPEG", quality=quality, subsampling=0, comment=b"")
        return output.getvalue()


def as_jpeg(data: bytes) -> Converted:
    """A picture of any format that ``decode_image`` reads, as JPEG bytes; a sound JPEG is returned as it is.

    Pictures of more than MOST_CONVERTED_PIXELS are made smaller on the way.
    """
    image = decode_image(data)
    if data.startswith(JPEG_START):
        return Converted(data)
    changes = "converted to JPEG"
    if image.width * image.height > MOST_CONVERTED_PIXELS:
        scale = math.sqrt(MOST_CONVERTED_PIXELS / (image.width * image.height))
        image = image.resize((max(1, int(image.width * scale)), max(1, int(image.height * scale))))
        changes = f"made smaller ({image.width} x {image.height} pixels) and {changes}"
    return Converted(encode_jpeg(image), changes)


def without_metadata(data: bytes) -> bytes:
    """A JPEG upright and without what cameras and programs write beside the picture: place, time, device, comments. A
    picture that lies on its side is encoded anew, any other keeps its pixels bit by bit. Other formats become JPEGs.

    Source: ITU-T T.81, annex B; the metadata of a JPEG lies in its segments APP1 to APP15, but for Adobe's APP14, which
    says how colours are encoded, and the colour profile in APP2, and in comments.
    """
    from PIL import Image as images

    if not data.startswith(JPEG_START):
        return encode_jpeg(decode_image(data))
    with _reading():
        is_turned = images.open(io.BytesIO(data), formats=["JPEG"]).getexif().get(ORIENTATION, 1) != 1
    if is_turned:
        return encode_jpeg(decode_image(data))
    kept, at = [data[:2]], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != START_OF_SCAN:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        segment = data[at:end]
        is_profile = segment[1] == 0xE2 and segment[4:].startswith(b"ICC_PROFILE")
        if not (0xE1 <= segment[1] <= 0xEF or segment[1] == COMMENT) or is_profile or segment[1] == ADOBE:
            kept.append(segment)
        at = end
    if data[at : at + 2] != bytes((0xFF, START_OF_SCAN)):  # laid out in a way that was not foreseen
        return encode_jpeg(decode_image(data))
    return b"".join([*kept, data[at:]])


@contextmanager
def _reading() -> Iterator[None]:
    """Pillow's own complaints stay off the terminal; what its decoders raise becomes one error of ours."""
    with _turns, _quiet:
        try:
            yield
        except LeapSerializationError:
            raise
        except MemoryError:
            raise LeapSerializationError("the picture does not fit into memory") from None
        except Exception as error:  # decoders raise whatever the damage leads to, from OSError to struct.error
            raise LeapSerializationError(f"the picture is damaged or cut short: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error).strip() else type(error).__name__


def _as_rgb(image: Image) -> Image:
    from PIL import Image as images

    if image.mode == "P" and "transparency" in image.info or image.mode in ("LA", "PA", "La", "RGBa"):
        image = image.convert("RGBA")
    elif "transparency" in image.info and image.mode in ("L", "RGB", "I;16", "I"):
        image = _sixteen_bits_as_eight(image).convert("RGBA")
    if image.mode == "RGBA":
        white = images.new("RGBA", image.size, (255, 255, 255, 255))
        return images.alpha_composite(white, image).convert("RGB")
    return _sixteen_bits_as_eight(image).convert("RGB")


def _sixteen_bits_as_eight(image: Image) -> Image:
    """Grey of 16 or 32 bits scaled to 8; Pillow would cut off what is above 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    import numpy as np
    from PIL import Image as images

    values: Any = np.asarray(image)
    if not np.isfinite(values).all():
        raise LeapSerializationError("the picture has values that are not finite")
    most = 65_535.0
    if image.mode == "F" and (highest := float(values.max(initial=0))) <= 255:
        most = 1.0 if 0 < highest <= 1 else 255.0  # a float picture is often of 0 to 1
    grey = np.empty(values.shape, np.uint8)
    for top in range(0, len(values), ROWS):  # in float64 the whole picture would take eight times its size
        band = values[top : top + ROWS].astype(np.float64)
        grey[top : top + ROWS] = np.clip(band * (255.0 / most), 0, 255).round()
    return images.fromarray(grey, "L")
