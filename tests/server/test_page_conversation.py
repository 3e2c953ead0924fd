"""The page's conversation in a real headless browser, with a model that plays scripts."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image

from leap_core import LeapGenerationError
from leap_core.conversation.responses import AudioSample, Chunk, ReasoningChunk
from leap_core.testing import Script, Stall

from ..wav_bytes import wav_of
from .page_screen import (
    ENTER,
    ESCAPE,
    LAST,
    SHIFT,
    asked,
    can,
    counts,
    ended,
    focus,
    needs_browser,
    say,
    settings,
    shown,
    turns,
)

pytestmark = needs_browser


def test_several_turns_edit_retry_and_a_reload(page):
    page, server = page("Hello.", "**Bold**.", "Again.", "Other.")
    say(page, "Hi")
    ended(page)
    say(page, "More")
    ended(page)
    page.wait(lambda: page.text(f"{LAST} strong") == "Bold")
    assert asked(server) == [("user", "Hi"), ("assistant", "Hello."), ("user", "More")]
    assert "Bold" in page.text("#spoken") and focus(page) == "prompt"

    page.click(f"{LAST} [data-action=retry]")
    page.wait(lambda: turns(page) == ["Hi", "Hello.", "More", "Again."])
    assert asked(server) == [("user", "Hi"), ("assistant", "Hello."), ("user", "More")] and focus(page) == "prompt"
    ended(page)

    page.run("document.querySelector('#turns li [data-action=edit]').click()")
    assert page.run("return document.querySelector('#prompt').value") == "Hi"
    page.type("#prompt", " there" + ENTER)
    page.wait(lambda: turns(page) == ["Hi there", "Other."])
    ended(page)
    assert asked(server) == [("user", "Hi there")]

    page.open(f"http://127.0.0.1:{server.port}/?again")
    page.wait(lambda: page.text("#conversations .title") == "Hi")
    page.run("document.querySelector('#kept').open = true; document.querySelector('#conversations .title').click()")
    page.wait(lambda: turns(page) == ["Hi there", "Other."])


def test_only_one_answer_runs_and_escape_stops_it(page):
    stall = Stall()
    page, server = page(Script(["One", stall, "more"]), "Two.")
    page.type("#prompt", "a" + SHIFT + ENTER)  # a line break
    page.press("\ue000")
    assert page.run("return document.querySelector('#prompt').value") == "a\n"
    say(page, "b")
    page.wait(lambda: turns(page)[-1] == "One")
    page.type("#prompt", "second" + ENTER)
    page.run("document.querySelector('#ask').requestSubmit()")
    assert "Esc" in page.text("#refused") and len(server.runner.requests) == 1
    assert page.run("return document.querySelector('#prompt').value") == "second", "what was typed stays"
    page.press(ESCAPE)
    page.wait(lambda: "stopped" in counts(page))
    assert turns(page) == ["a\nb", "One"] and page.run("return document.querySelector('#stop').hidden")
    page.press(ENTER)
    page.wait(lambda: turns(page)[-1] == "Two.")
    assert asked(server) == [("user", "a\nb"), ("assistant", "One"), ("user", "second")]


def test_reasoning_is_folded_and_a_failed_answer_stays_and_is_tried_again(page):
    page, server = page([ReasoningChunk("Hm, let me see"), "Half", LeapGenerationError("on fire")], "Whole.")
    say(page, "Think")
    page.wait(lambda: "on fire" in counts(page))
    assert turns(page) == ["Think", "Half"] and "Hm, let me see" in page.text(f"{LAST} .reasoning")
    assert page.run(f"return document.querySelector('{LAST} .reasoning').open") is False
    page.click(f"{LAST} [data-action=retry]")
    page.wait(lambda: turns(page) == ["Think", "Whole."])


def test_settings_are_sent_and_a_cut_answer_says_so_and_goes_on(page):
    page, server = page(["one", " two"], "three")
    page.run("document.querySelector('#settings').open = true")
    page.type("#system", "Be brief.")
    page.type("#temperature", "0.25")
    page.type("#max_tokens", "1")
    say(page, "Count")
    page.wait(lambda: "cut off at the limit of tokens" in counts(page))
    assert asked(server) == [("system", "Be brief."), ("user", "Count")]
    assert server.runner.requests[-1].options.temperature == 0.25
    page.click(f"{LAST} [data-action=continue]")
    page.wait(lambda: turns(page) == ["Count", "one", "Continue.", "three"])


DROP = (
    "const bytes = Uint8Array.from(atob(arguments[0]), c => c.charCodeAt(0)), files = new DataTransfer();"
    "files.items.add(new File([bytes], arguments[1], { type: arguments[2] }));"
    "document.querySelector('#prompt').dispatchEvent("
    "new DragEvent('drop', { dataTransfer: files, bubbles: true, cancelable: true }))"
)


def test_documents_are_dropped_and_read(page):
    docx = pytest.importorskip("docx")
    document, data = docx.Document(), io.BytesIO()
    document.add_paragraph("The total is 42 euros.")
    document.save(data)
    page, server = page("42.")
    page.run(DROP, base64.b64encode(data.getvalue()).decode(), "report.docx", "application/zip")
    page.wait(lambda: "report.docx" in page.text("#attached"))
    say(page, "The total?")
    ended(page)
    said = server.runner.requests[-1].messages[0].text
    assert said.startswith("report.docx:\nThe total is 42 euros.") and said.endswith("The total?")
    assert "report.docx" in page.text("#turns")


def test_pictures_and_sound_are_dropped_where_the_model_takes_them(page):
    page, server = page("A picture.")
    drop = DROP
    picture, sound = io.BytesIO(), base64.b64encode(wav_of([0.1] * 800, 8000)).decode()
    Image.new("RGB", (8, 8), "red").save(picture, "PNG")
    drawn = base64.b64encode(picture.getvalue()).decode()
    page.run(drop, drawn, "red.png", "image/png")
    assert "takes no such file: red.png" in page.text("#refused")
    can(page, "vision", "audio")
    page.wait(lambda: "Drop or paste documents, pictures and sound" in page.text("#keys"))
    page.run(drop, drawn, "red.png", "image/png")
    page.wait(lambda: "red.png" in page.text("#attached"))
    page.run(drop, sound, "beep.wav", "audio/wav")
    page.wait(lambda: "beep.wav" in page.text("#attached"))
    say(page, "What is it?")
    ended(page)
    image, heard, text = server.runner.requests[-1].messages[0].content
    assert image.data.startswith(b"\xff\xd8") and heard.sample_rate == 16000 and len(heard.samples) == 1600
    assert text.text == "What is it?" and page.text("#attached") == ""


def test_messages_stay_when_the_server_ends(page):
    page, server = page("Hello.")
    say(page, "Hi")
    ended(page)
    page.run("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    page.wait(lambda: "does not answer" in page.text("#state"))
    say(page, "Still there?")
    page.wait(lambda: "does not answer" in counts(page))
    assert turns(page) == ["Hi", "Hello.", "Still there?", ""]
    assert page.run("return [...document.querySelectorAll('.of-models')].every(part => !part.hidden)")


def test_no_markup_of_an_answer_runs(page):
    evil = "<img src=x onerror='document.title=1'><script>document.title=1</script> [a](javascript:alert(1))"
    page, _ = page(evil)
    say(page, "<b>me</b>")
    ended(page)
    page.wait(lambda: page.run(f"return document.querySelectorAll('{LAST} .text > p').length"))
    assert turns(page)[0] == "<b>me</b>" and page.run("return document.title") == "leap"
    assert (
        page.run("return document.querySelectorAll('#turns img, #turns script, #turns b, #turns .text a').length") == 0
    )


def test_markdown_is_rendered_while_the_answer_comes_and_reasoning_is_switched(page):
    stall = Stall()
    page, server = page(Script(["**Bold** and <b>more", stall, "** end"]))
    settings(page)
    assert not shown(page, "#reason")
    can(page, "completion", "thinking")
    page.wait(lambda: shown(page, "#reason"))
    page.click("#reason")
    say(page, "Go")
    page.wait(lambda: page.text(f"{LAST} .text strong") == "Bold")
    assert page.run("return document.querySelector('#turns').ariaBusy") == "true", "it still comes"
    assert turns(page)[-1] == "Bold and <b>more"
    stall.release()
    ended(page)
    page.wait(lambda: turns(page)[-1] == "Bold and <b>more** end")
    assert server.runner.requests[-1].options.enable_thinking


def test_the_microphone_records_what_the_model_hears_and_its_voice_is_played(page):
    sound = AudioSample((0.1, -0.1) * 1200, 24000)
    page, server = page(Script([Chunk("I heard."), sound, sound]), speaks=True)
    assert not shown(page, "#record")
    can(page, "audio", "speech")
    page.wait(lambda: shown(page, "#record"))
    page.click("#record")
    page.wait(lambda: page.text("#record") == "Stop recording" and page.text("#recorded"))
    page.type("#prompt", "Listen" + ENTER)
    assert "microphone is on" in page.text("#refused")
    page.click("#record")
    page.wait(lambda: "Recording" in page.text("#attached"))
    settings(page)
    page.click("#speak")
    say(page, "")
    ended(page)
    heard, text = server.runner.requests[-1].messages[-1].content
    assert heard.sample_rate == 16000 and len(heard.samples) > 1600 and max(heard.samples) > 0.01
    assert text.text == "Listen" and turns(page)[-1] == "I heard."
    page.wait(lambda: page.run(f"return document.querySelector('{LAST} audio').duration") == 0.2)
