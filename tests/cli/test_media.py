"""``--image``, ``--audio`` and ``leap transcribe`` on the scripted runner: what becomes of files and arguments."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image as pillow

from leap_core.conversation.messages import Audio, ChatMessage, Image, PagePicture, Text
from leap_core.conversation.responses import Complete, GenerationFinishReason
from leap_core.errors import LeapUnsupportedMediaError
from tests.documents.test_page_pictures import LOGO, RULE, TEXT, pdf
from tests.documents.test_reading import scan

STOP = GenerationFinishReason.STOP

RATE = 16_000


def sound(seconds: float, *, format: str = "WAV", channels: int = 1, pause_at: float | None = None) -> bytes:
    samples = np.random.default_rng(3).uniform(-0.4, 0.4, (int(seconds * RATE), channels))
    if pause_at is not None:
        samples[int(pause_at * RATE) : int((pause_at + 0.5) * RATE)] = 0
    output = io.BytesIO()
    soundfile.write(output, samples, RATE, format=format, subtype="PCM_16" if format == "WAV" else None)
    return output.getvalue()


@pytest.fixture
def directory(leap) -> Path:
    place = leap.home.parent
    pillow.new("RGB", (40, 40), "red").save(place / "red.png")
    pillow.new("RGB", (40, 40), "blue").save(place / "blue.jpg")
    (place / "hum.wav").write_bytes(sound(0.5))
    (place / "talk.flac").write_bytes(sound(1.0, format="FLAC", channels=2))
    return place


def test_pictures_then_sounds_then_the_prompt(leap, directory) -> None:
    runner = leap.script("two squares")
    done = leap(
        "generate", "-m", "some", "What", "is this?", "--audio", "talk.flac", "--image", "red.png",
        "--image", "blue.jpg", "--audio", "hum.wav", "--image-tokens", "64", "--option", "image-tiles",
    )  # fmt: skip
    assert (done.code, done.stdout) == (0, "two squares\n"), done
    request = runner.requests[0]
    red, blue, talk, hum, text = request.messages[0].content
    assert isinstance(red, Image) and blue == Image((directory / "blue.jpg").read_bytes())
    assert isinstance(talk, Audio) and hum == Audio((directory / "hum.wav").read_bytes())
    assert text == Text("What is this?")
    assert (request.options.image_tokens, request.options.image_tiles) == (64, True)
    assert "red.png: converted to JPEG" in done.stderr
    assert "talk.flac: FLAC decoded, stereo mixed down to mono" in done.stderr
    assert "blue.jpg" not in done.stderr and "hum.wav" not in done.stderr


def test_a_picture_from_standard_input_and_no_prompt(leap, directory) -> None:
    runner = leap.script("red")
    assert leap("generate", "-m", "some", "--image", "-", stdin=(directory / "red.png").read_bytes()).stdout == "red\n"
    assert [type(part) for part in runner.requests[0].messages[0].content] == [Image]
    runner = leap.script("a hum")
    assert leap("generate", "-m", "some", "--audio", "-", "What?", stdin=(directory / "hum.wav").read_bytes()).code == 0
    assert [type(part) for part in runner.requests[0].messages[0].content] == [Audio, Text]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--image", "none.png", "a"), "cannot read none.png: No such file"),
        (("--image", "hum.wav", "a"), "hum.wav: not a picture"),
        (("--audio", "red.png", "a"), "red.png: not a sound that can be read"),
        (("--image", "cut.jpg", "a"), "cut.jpg: the picture is damaged or cut short"),
        (("--audio", "cut.wav", "a"), "cut.wav: the WAV is truncated"),
        (("--image", "empty", "a"), "empty: the picture is empty"),
        (("--audio", "empty", "a"), "empty: the sound is empty"),
        (("--image", "-", "--audio", "-", "a"), "'-' means standard input"),
        (("--image", "-", "-"), "'-' means standard input"),
        (("--raw", "--image", "red.png", "a"), "--raw cannot be combined with --image"),
        (("--image-tokens", "4", "--image", "red.png", "a"), "--image-tokens: 4 must be 16 or more"),
        (("--image-tokens", "4000", "--image", "red.png", "a"), "must be 1024 or less"),
    ],
)
def test_each_invalid_file_is_one_error(leap, directory, arguments, says) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (64, 64, 3), np.uint8)
    pillow.fromarray(noise).save(directory / "cut.jpg")
    for name, source in (("cut.jpg", "cut.jpg"), ("cut.wav", "hum.wav")):
        (directory / name).write_bytes((directory / source).read_bytes()[:-500])
    (directory / "empty").write_bytes(b"")
    leap.script("never")
    done = leap("generate", "-m", "some", *arguments)
    assert (done.code, done.stdout) == (2, ""), done
    assert says in done.stderr and done.stderr.count("error:") == 1 and "Traceback" not in done.stderr


def test_mmproj_names_the_projector(leap, directory) -> None:
    leap.script("red")
    assert leap("generate", "-m", "some", "--mmproj", "eyes.gguf", "--image", "red.png").code == 0
    assert leap.loaded[0][1].mm_proj_path == directory / "eyes.gguf"


def test_sessions_keep_media(leap, directory) -> None:
    leap.script("red")
    assert leap("generate", "-m", "some", "--save", "--image", "red.png", "What is it?").code == 0
    runner = leap.script("blue")
    assert leap("generate", "-m", "some", "-c", "And now?").code == 0
    first, _, second = runner.requests[0].messages
    assert isinstance(first.content[0], Image) and second.text == "And now?"
    (session,) = json.loads(leap("sessions", "list", "--format", "json").stdout)
    exported = leap("export", session["id"], "--format", "openai").stdout
    assert "data:image/jpeg;base64," in exported and "And now?" in exported


def test_transcribe_prints_each_piece(leap, directory) -> None:
    (directory / "long.wav").write_bytes(sound(50, pause_at=24))
    runner = leap.script("hello there", "and goodbye")
    done = leap("transcribe", "-m", "some", "long.wav")
    assert (done.code, done.stdout) == (0, "hello there\nand goodbye\n"), done
    system, question = runner.requests[0].messages
    assert system.text == "Perform ASR." and [type(part) for part in question.content] == [Audio]
    assert runner.requests[0].options.temperature == 0.0 and runner.requests[0].options.max_tokens == 512


def test_transcripts_with_times(leap, directory) -> None:
    (directory / "long.wav").write_bytes(sound(50, pause_at=24))
    leap.script("hello <there>", "and goodbye")
    value = json.loads(leap("transcribe", "-m", "some", "long.wav", "--format", "json").stdout)
    assert value["text"] == "hello <there> and goodbye" and value["duration"] == 50.0
    first, second = value["segments"]
    assert first["start"] == 0 and 24 <= first["end"] <= second["start"] <= 24.5 and second["end"] == 50.0
    leap.script("hello <there>", "and goodbye")
    srt = leap("transcribe", "-m", "some", "long.wav", "--format", "srt").stdout
    assert srt.startswith("1\n00:00:00,000 --> 00:00:24,") and "\n\n2\n00:00:24," in srt and "hello <there>" in srt
    leap.script("hello <there>", "and goodbye")
    done = leap("transcribe", "-m", "some", "long.wav", "--format", "vtt", "-o", "long.vtt")
    vtt = (directory / "long.vtt").read_text()
    assert done.stdout == "" and vtt.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:24.") and "hello &lt;there&gt;" in vtt


def test_transcripts_of_several_files_go_into_a_directory(leap, directory) -> None:
    (directory / "out").mkdir()
    leap.script("one", "two")
    assert leap("transcribe", "-m", "some", "hum.wav", "talk.flac", "--format", "srt", "-o", "out").code == 0
    assert sorted(path.name for path in (directory / "out").iterdir()) == ["hum.srt", "talk.srt"]
    refused = leap("transcribe", "-m", "some", "hum.wav", "talk.flac", "--format", "srt")
    assert refused.code == 2 and "needs -o DIRECTORY" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("none.wav",), "cannot read none.wav"),
        (("red.png",), "red.png: not a sound"),
        (("short.wav",), "short.wav: the sound is too short: 0.050 s"),
        (("hum.wav", "-o", "none/out.txt"), "there is no directory"),
        (("-", "-"), "'-' means standard input"),
    ],
)
def test_transcribe_names_each_error(leap, directory, arguments, says) -> None:
    (directory / "short.wav").write_bytes(sound(0.05))
    leap.script("never")
    done = leap("transcribe", "-m", "some", *arguments)
    assert (done.code, done.stdout) == (2, "") and says in done.stderr


def test_silence_is_not_sent_to_the_model(leap, directory) -> None:
    runner = leap.script("never")
    output = io.BytesIO()
    soundfile.write(output, np.zeros(RATE * 2), RATE, format="WAV")
    done = leap("transcribe", "-m", "some", "-", stdin=output.getvalue())
    assert (done.code, done.stdout) == (0, "") and not runner.requests


def test_image_and_audio_given_with_file_are_sent_as_such(leap, directory) -> None:
    runner = leap.script("a square", "a square")
    (directory / "note.txt").write_text("BM is a format, and P1 a priority.")
    done = leap("generate", "-m", "some", "-f", "red.png", "-f", "note.txt", "-f", "hum.wav", "What?")
    assert done.code == 0, done
    red, hum, text = runner.requests[0].messages[0].content
    assert isinstance(red, Image) and isinstance(hum, Audio)
    assert isinstance(text, Text) and "note.txt:" in text.text and text.text.endswith("What?")
    runner = leap.script("a square")
    assert leap("chat", "-m", "some", "-f", "red.png", "What?", stdin="").code == 0
    assert [type(part) for part in runner.requests[0].messages[0].content] == [Image, Text]
    done = leap("generate", "-m", "some", "--raw", "-f", "red.png", "What?")
    assert done.code == 2 and "--raw" in done.stderr


@pytest.mark.parametrize("text", ["BM is a format", "P1 priority", "caffeine", "ID3 is a tag", ".snd of it"])
def test_a_text_that_begins_like_an_image_is_a_text(leap, directory, text) -> None:
    runner = leap.script("yes")
    (directory / "note.txt").write_text(text)
    assert leap("generate", "-m", "some", "-f", "note.txt", "Really?").code == 0
    assert text in runner.requests[0].messages[0].text


@pytest.mark.slow
def test_a_pdf_that_is_given_as_a_file_is_read(leap, directory) -> None:
    from tests.pdf_bytes import pdf_bytes

    runner = leap.script("yes")
    (directory / "letter.pdf").write_bytes(pdf_bytes(["The invoice is due in May."]))
    assert leap("generate", "-m", "some", "-f", "letter.pdf", "When?").code == 0
    assert "letter.pdf:\n```\nThe invoice is due in May." in runner.requests[0].messages[0].text
    (directory / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    done = leap("generate", "-m", "some", "-f", "bad.pdf", "When?")
    assert done.code != 0 and "bad.pdf" in done.stderr and len(runner.requests) == 1


def test_an_image_for_a_text_model_is_refused_with_advice_and_is_not_saved(leap, directory) -> None:
    from leap_core.conversation.sessions import SessionStore
    from leap_core.errors import LeapUnsupportedMediaError

    leap.script([LeapUnsupportedMediaError("some takes no pictures")], "hello")
    done = leap("chat", "-m", "some", stdin="/attach red.png\nWhat is it?\n/attach none\nhi\n", stdin_terminal=True)
    assert "/attach none" in done.stderr.split("some takes no pictures")[1]
    with SessionStore(leap.home / "leap.db") as store:
        assert [message.text for message in store.history(store.latest().id)] == ["hi", "hello"]
    leap.script([LeapUnsupportedMediaError("some takes no pictures")])
    leap("chat", "-m", "some", "--session", "refused", stdin="hm?\n", stdin_terminal=True)
    with SessionStore(leap.home / "leap.db") as store:
        assert store.get("refused") is None


@pytest.mark.slow
def test_pages_that_are_pictures_are_named_and_the_others_answered(leap, directory) -> None:
    """A page that shows a rule or a logo keeps no document from a model that reads text only."""
    (directory / "fees.pdf").write_bytes(pdf(RULE, TEXT, LOGO))
    said = "pages 1 and 3 of fees.pdf are pictures and were left out"
    runner = leap.script(["forty-two", Complete(ChatMessage("assistant", "forty-two"), STOP, left_out=(said,))])
    done = leap("generate", "-m", "some", "-f", "fees.pdf", "How much?")
    assert (done.code, done.stdout) == (0, "forty-two\n") and f"leap: warning: {said}\n" in done.stderr
    content = runner.requests[0].messages[0].content
    pages = [(part.file, part.page, part.is_needed) for part in content if isinstance(part, PagePicture)]
    assert pages == [("fees.pdf", 1, False), ("fees.pdf", 3, False)]
    text = "[page 1 is a picture]\nThe fee of page 2 is 42 euros.\n[page 3 is a picture]"
    assert f"fees.pdf:\n```\n{text}\n```" in content[-1].text
    leap.script("forty-two")
    chat = leap("chat", "-m", "some", stdin="/attach fees.pdf\nHow much?\n", stdin_terminal=True)
    assert "forty-two" in chat.stdout


@pytest.mark.slow
@pytest.mark.parametrize("task", [("summarize",), ("extract", "--schema", "fee: number"), ("extract", "--lines")])
def test_tasks_leave_out_pages_that_are_images(leap, directory, task) -> None:
    (directory / "fees.pdf").write_bytes(pdf(RULE, TEXT))
    schema = () if "--schema" in task or task == ("summarize",) else ("--schema", "fee: number")
    runner = leap.script(*([BLIND] if "--lines" not in task else []), '{"fee": 42}')
    done = leap(*task, *schema, "-m", "some", "fees.pdf")
    assert done.code == 0 and "page 1 of fees.pdf is a picture and was left out" in done.stderr, done
    assert "The fee of page 2 is 42 euros." in runner.requests[-1].messages[-1].text


BLIND = [LeapUnsupportedMediaError("some takes no pictures")]


@pytest.mark.slow
def test_a_document_of_only_images_is_refused_by_name(leap, directory) -> None:
    from leap_core import ModelLoadingOptions
    from leap_core.inference.runner import InProcessRunner
    from tests.support.random_models import TINY_LFM2, write_random_model

    model = write_random_model(directory / "tiny.gguf", TINY_LFM2, "f32")
    leap.runner = InProcessRunner(model, "some", ModelLoadingOptions())
    (directory / "scan.pdf").write_bytes(scan("one", "two"))
    done = leap("generate", "-m", "some", "-f", "scan.pdf", "When?")
    assert (done.code, done.stdout) == (3, "")
    assert done.stderr.startswith("leap: error: pages of scan.pdf are pictures: the message contains a picture")
