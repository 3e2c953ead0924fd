"""Pictures: every row of the table of bad ones is one clear error, and good ones come out as they look."""

from __future__ import annotations

import io
import random
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from leap_core.conversation.media.audio import kind_of_medium
from leap_core.conversation.media.image_plan import fitting_size, plan_image
from leap_core.conversation.media.images import MOST_PIXELS, as_jpeg, decode_image, encode_jpeg, without_metadata
from leap_core.errors import LeapSerializationError

RED, GREEN, BLUE = (200, 30, 40), (20, 180, 60), (30, 40, 210)


def quarters(mode: str = "RGB", size: int = 96) -> Image.Image:
    """Red and green above, blue and white below."""
    image = Image.new("RGB", (size, size), "white")
    half = size // 2
    for colour, corner in ((RED, (0, 0)), (GREEN, (half, 0)), (BLUE, (0, half))):
        image.paste(colour, (*corner, corner[0] + half, corner[1] + half))
    return image.convert(mode)


def saved(image: Image.Image, format: str, **options: object) -> bytes:
    output = io.BytesIO()
    image.save(output, format, **options)
    return output.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that announces a size, with hardly any data."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def jpeg_header(width: int, height: int) -> bytes:
    data = bytearray(saved(quarters(), "JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", height, width)
    return bytes(data)


JPEG, PNG = saved(quarters(), "JPEG", quality=95, subsampling=0), saved(quarters(), "PNG")
NOISE = saved(Image.effect_noise((96, 96), 90).convert("RGB"), "JPEG")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"\xff", "not a picture"),
        (b"some text that is no picture", "not a picture"),
        (random.Random(3).randbytes(5000), "not a picture"),
        (NOISE[: len(NOISE) // 2], "damaged or cut short"),
        (JPEG[:100], "not a picture|damaged or cut short"),
        (JPEG[: JPEG.index(b"\xff\xda")], "not a picture|damaged or cut short"),
        (PNG[: len(PNG) // 2], "damaged or cut short"),
        (saved(quarters(), "GIF")[:200], "damaged or cut short"),
        (png_header(0, 0), "not a picture|damaged|0 x 0"),
        (png_header(60_000, 60_000), "pixels"),
        (png_header(30_000, 20_000), "pixels"),
        (jpeg_header(65_000, 65_000), "pixels"),
        (png_header(16_000, 16_000), "pixels"),
        (png_header(9_000, 9_000), "9000 x 9000 pixels; at most 64,000,000"),
        (png_header(200, 1), "200 x 1 pixels, thinner than 1:10"),
        (png_header(20_000, 1), "thinner than 1:10"),
        (b"RIFF\x24\0\0\0WAVEfmt some sound", "not a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
        (b"\0" * (21 * 1024 * 1024), "21 MiB; at most 20 MiB"),
    ],
    ids=range(20),
)
def test_each_invalid_file_has_its_own_error(data: bytes, says: str) -> None:
    with pytest.raises(LeapSerializationError, match=says):
        decode_image(data)


def test_a_refused_image_causes_no_warning() -> None:
    assert MOST_PIXELS < 10_000 * 10_000 < 2 * Image.MAX_IMAGE_PIXELS  # where Pillow warns and goes on
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        with pytest.raises(LeapSerializationError):
            decode_image(png_header(10_000, 10_000))
    assert complaints == []


@pytest.mark.parametrize(
    "data",
    [
        JPEG,
        PNG,
        saved(quarters(), "JPEG", progressive=True, quality=95, subsampling=0),
        saved(quarters("CMYK"), "JPEG", quality=95, subsampling=0),
        saved(quarters("RGBA"), "PNG"),
        saved(quarters().quantize(16), "PNG"),
        saved(quarters(), "GIF"),
        saved(quarters(), "BMP"),
        saved(quarters(), "TIFF", compression="tiff_lzw"),
        saved(quarters(), "WEBP", lossless=True),
        saved(quarters(), "PPM"),
        saved(quarters(), "AVIF", quality=95),
        saved(quarters(), "GIF", save_all=True, append_images=[Image.new("RGB", (96, 96))]),
    ],
    ids=range(13),
)
def test_every_format_is_decoded_correctly(data: bytes) -> None:
    assert kind_of_medium(data[:16]) == "image"
    image = decode_image(data)
    assert (image.mode, image.size) == ("RGB", (96, 96))
    corners = [image.getpixel(at) for at in ((20, 20), (70, 20), (20, 70), (70, 70))]
    assert np.abs(np.subtract(corners, [RED, GREEN, BLUE, (255, 255, 255)])).max() <= 14
    jpeg = as_jpeg(data).data
    assert jpeg.startswith(b"\xff\xd8\xff") and (jpeg is data) == data.startswith(b"\xff\xd8\xff")
    assert np.abs(np.subtract(decode_image(jpeg).getpixel((20, 20)), RED)).max() <= 14


def test_grayscale_of_every_depth_is_decoded() -> None:
    ramp = np.tile(np.linspace(0, 255, 64), (64, 1))
    eight = Image.fromarray(ramp.astype(np.uint8))
    sixteen = Image.fromarray((ramp * 257).astype(np.uint16))
    for data in (saved(eight, "PNG"), saved(sixteen, "PNG"), saved(eight, "JPEG", quality=95), saved(sixteen, "TIFF")):
        pixels = np.asarray(decode_image(data), dtype=float)
        assert np.abs(pixels - ramp[:, :, None]).max() < 4
    assert decode_image(saved(quarters("1"), "PNG")).getpixel((70, 70)) == (255, 255, 255)


def test_transparency_is_drawn_on_white() -> None:
    hidden = Image.new("RGBA", (64, 64), (255, 0, 0, 0))
    hidden.paste((0, 0, 255, 255), (0, 0, 32, 64))
    for image in (hidden, hidden.convert("LA").convert("RGBA")):
        assert decode_image(saved(image, "PNG")).getpixel((50, 10)) == (255, 255, 255)
    palette = Image.new("P", (64, 64), 1)
    palette.putpalette([10, 20, 30, 255, 0, 0])
    assert decode_image(saved(palette, "PNG", transparency=1)).getpixel((5, 5)) == (255, 255, 255)
    grey = Image.new("L", (64, 64), 7)
    assert decode_image(saved(grey, "PNG", transparency=7)).getpixel((5, 5)) == (255, 255, 255)


@pytest.mark.parametrize("turned", range(1, 9))
def test_the_exif_orientation_is_applied(turned: int) -> None:
    undo = {
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }
    stored = quarters()
    for step in undo.get(turned, []):
        stored = stored.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = turned
    upright = decode_image(saved(stored, "JPEG", quality=95, subsampling=0, exif=exif))
    assert np.abs(np.subtract(upright.getpixel((20, 20)), RED)).max() <= 14
    assert np.abs(np.subtract(upright.getpixel((70, 20)), GREEN)).max() <= 14


def test_a_pillow_image_becomes_a_jpeg() -> None:
    for mode in ("RGB", "RGBA", "L", "P", "CMYK", "I;16", "1", "LA", "F"):
        image = quarters("L").convert("F") if mode in ("F", "I;16") else quarters(mode)
        image = Image.fromarray(np.asarray(image).astype(np.uint16)) if mode == "I;16" else image
        assert decode_image(encode_jpeg(image)).size == (96, 96)
    for quality in (0, 101, 9.5):
        with pytest.raises(LeapSerializationError, match="quality"):
            encode_jpeg(quarters(), quality)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_huge_image_is_scaled_down_when_it_is_converted() -> None:
    converted = as_jpeg(saved(Image.new("RGB", (7000, 3500), RED), "PNG"))
    assert converted.changes == "made smaller (5656 x 2828 pixels) and converted to JPEG"
    assert decode_image(converted.data).size == (5656, 2828)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((64, 64), [64]),
        ((128, 128), [64]),
        ((256, 256), [64]),
        ((300, 200), [70]),
        ((400, 300), [117]),
        ((640, 480), [234]),
        ((512, 512), [256]),
        ((512, 1024), [242]),
        ((720, 1280), [256, 256, 252]),
        ((1024, 768), [256] * 6 + [234]),
        ((1920, 1080), [256] * 8 + [252]),
    ],
)
def test_the_token_count_of_images(size: tuple[int, int], tokens: list[int]) -> None:
    assert [look.tokens for look in plan_image(*size, tiles=True).looks] == tokens
    assert plan_image(*size).tokens <= 256


@pytest.mark.parametrize("most", [16, 64, 100, 256, 1024])
def test_the_token_budget_holds_for_images_of_every_size(most: int) -> None:
    dice = random.Random(1)
    for _ in range(500):
        width, height = dice.randint(1, 4000), dice.randint(1, 4000)
        if max(width, height) <= 10 * min(width, height):
            across, down = fitting_size(width, height, most_tokens=most)
            assert across % 32 == down % 32 == 0
            assert min(64, most) * 0.4 <= across * down // 1024 <= most


def test_media_types_are_detected_from_the_first_bytes() -> None:
    for data, kind in (
        (b"RIFF\0\0\0\0WAVE", "audio"),
        (b"fLaC", "audio"),
        (b"OggS", "audio"),
        (b"ID3\x04", "audio"),
        (b"FORM\0\0\0\0AIFF", "audio"),
        (b"BMW and other cars", None),
        (b"P6 \n", "image"),
        (b"Plain text", None),
        (b"%PDF-1.7", None),
        (b"", None),
    ):
        assert kind_of_medium(data) == kind


def test_an_image_of_floats_from_0_to_1_keeps_its_brightness() -> None:
    for most in (1.0, 255.0):
        values = np.linspace(0, most, 64 * 64, dtype=np.float32).reshape(64, 64)
        grey = np.asarray(decode_image(saved(Image.fromarray(values, "F"), "TIFF")))[..., 0]
        assert grey[0, 0] == 0 and grey[-1, -1] == 255 and abs(int(grey[32, 0]) - 128) <= 1


def test_metadata_of_an_image_is_removed_and_its_pixels_stay() -> None:
    exif = Image.Exif()
    exif[0x010F] = "Camera of me"
    plain = saved(quarters(), "JPEG", quality=90)
    for data in (
        saved(quarters(), "JPEG", quality=90, exif=exif, comment=b"at home"),
        plain[:2] + b"\xff" + plain[2:],  # a fill byte before a marker
    ):
        bare = without_metadata(data)
        assert b"Camera" not in bare and b"at home" not in bare
        assert np.abs(np.asarray(decode_image(bare), int) - np.asarray(decode_image(plain), int)).max() <= 24
    assert without_metadata(plain) == plain
