"""What the page does beside the conversation, in a real headless browser: sessions, tools, data, sources, files."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import PIL.Image
import pytest

from leap_core import ChatMessage
from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.messages import Image, LeapFunctionCall, Speech, Text
from leap_core.conversation.responses import FunctionCalls
from leap_core.conversation.sessions import SessionStore
from leap_core.server.page.page_sessions import PageServices
from leap_core.tasks.search.index_file import IndexSettings
from leap_core.tasks.search.updating import update_index
from leap_core.testing import Script, Stall
from leap_core.tools.policy import FunctionPolicy, ToolPolicy

from ..wav_bytes import wav_of
from .page_screen import ENTER, ESCAPE, LAST, can, ended, needs_browser, say, settings, shown, turns

pytestmark = needs_browser


def test_conversations_are_sessions_that_the_terminal_shares(page, tmp_path):
    file = tmp_path / "leap.db"
    page, server = page("Hello.", "Again.", "More.", "Late.", page=PageServices(sessions=file))
    address = f"http://127.0.0.1:{server.port}/"
    page.wait(lambda: "leap chat -c" in page.text("#kept-where"))
    say(page, "Hi")
    ended(page)
    page.wait(lambda: "session" in page.text("#conversations"))

    def kept():
        with SessionStore(file) as store:
            return [[message.text for message in store.history(each.id)] for each in store.list()]

    page.wait(lambda: kept() == [["Hi", "Hello."]])
    with SessionStore(file) as store:  # leap chat -c
        store.append(store.list()[0].id, ChatMessage("user", "Terminal"))
        store.append(store.list()[0].id, ChatMessage("assistant", "There."))
    page.open(address + "?again")
    page.wait(lambda: page.text("#conversations .title") == "Hi")
    page.run("document.querySelector('#kept').open = true; document.querySelector('#conversations .title').click()")
    page.wait(lambda: turns(page) == ["Hi", "Hello.", "Terminal", "There."])
    say(page, "On")
    ended(page)
    page.wait(lambda: kept() == [["Hi", "Hello.", "Terminal", "There.", "On", "Again."]])
    page.run("window.prompt = () => 'greeting'")
    page.click("#conversations [aria-label='Rename Hi']")
    page.wait(lambda: page.text("#conversations .title") == "greeting")
    with SessionStore(file) as store:
        assert store.list()[0].name == "greeting"
        store.append(store.list()[0].id, ChatMessage("user", "Meanwhile"))
    say(page, "Conflict")
    ended(page)
    page.wait(lambda: "as a new one" in page.text("#refused") or len(kept()) == 2)
    page.wait(lambda: sorted(map(len, kept())) == [7, 8])
    page.run("window.confirm = () => true")
    page.click("#conversations [aria-label='Delete greeting']")
    page.wait(lambda: len(kept()) == 1)


def open_listed(page, said):
    page.wait(lambda: page.text("#conversations .title"))
    page.run("document.querySelector('#kept').open = true; document.querySelector('#conversations .title').click()")
    page.wait(lambda: turns(page) == said)


def test_parts_of_a_session_that_are_not_shown_are_kept(page, tmp_path):
    picture = io.BytesIO()
    PIL.Image.new("RGB", (8, 8), "red").save(picture, "JPEG")
    speech = Speech(wav_of([0.0, 0.5], 24000), (128, (1, 2, 3)))
    first = [
        ChatMessage("system", "Be brief."),
        ChatMessage("user", [Text("Before"), Image(picture.getvalue()), Text("after")]),
        ChatMessage("assistant", [Text("I see."), speech]),
        ChatMessage("system", "Be kind.\r\n"),
        ChatMessage("user", "Sing"),
        ChatMessage("assistant", [speech]),
        ChatMessage("user", ""),
        ChatMessage("assistant", ""),
    ]
    file = tmp_path / "leap.db"
    with SessionStore(file) as store:
        id = store.create().id
        store.replace(id, first)

    def kept():
        with SessionStore(file) as store:
            return list(store.history(id))

    page, server = page("Yes.", "Aye.", page=PageServices(sessions=file))
    open_listed(page, ["Before\nafter", "I see.", "Sing", "", "", ""])
    say(page, "On")
    ended(page)
    page.wait(lambda: len(kept()) == 10)
    assert kept() == [*first, ChatMessage("user", "On"), ChatMessage("assistant", "Yes.")]
    asked = server.runner.requests[-1].messages
    assert asked[0].text == "Be kind." and asked[1].content == first[1].content
    settings(page)
    page.type("#system", "And short.")
    say(page, "Well")
    ended(page)
    page.wait(lambda: len(kept()) == 12)
    changed = kept()
    assert [*changed[:3], *changed[4:8]] == [*first[:3], *first[4:]] and "And short." in changed[3].text


@pytest.mark.parametrize("sessions", [True, False])
def test_a_conversation_that_is_deleted_while_an_answer_comes_stays_away(page, tmp_path, sessions):
    file = tmp_path / "leap.db"
    page, _ = page(Script(["One", Stall(), "more"]), page=PageServices(sessions=file if sessions else None))
    page.wait(lambda: not sessions or "leap chat -c" in page.text("#kept-where"))
    page.run(
        "window.confirm = () => true; const real = window.fetch, put = Storage.prototype.setItem; window.writes = 0;"
        "Storage.prototype.setItem = function (...all) {"
        " window.writes += this === localStorage; return put.apply(this, all); };"
        "window.fetch = (path, options) => {"
        " window.writes += /^leap.sessions/.test(path) && options.method === 'POST'; return real(path, options); }"
    )
    say(page, "Hi")
    page.wait(lambda: turns(page)[-1] == "One" and page.text("#conversations .title") == "Hi")
    writes = page.run("return window.writes")
    page.run("document.querySelector('#kept').open = true")
    page.click("#conversations [aria-label='Delete Hi']")
    page.wait(lambda: shown(page, "#stop") is False and turns(page) == [])
    page.wait(lambda: not shown(page, "#kept"))
    assert page.run("return window.writes") == writes == 1


def test_a_second_click_while_the_microphone_is_asked_for_opens_no_second(page):
    page, _ = page("Hello.")
    can(page, "audio")
    page.wait(lambda: shown(page, "#record"))
    page.run(
        "window.opened = []; const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);"
        "navigator.mediaDevices.getUserMedia = async (what) => {"
        " const made = real(what); window.opened.push(made); return made; };"
        "document.querySelector('#record').click(); document.querySelector('#record').click()"
    )
    page.wait(lambda: page.text("#record") == "Stop recording")
    assert page.run("return window.opened.length") == 1
    page.wait(lambda: page.text("#recorded"))
    page.click("#record")
    page.wait(lambda: "Recording" in page.text("#attached"))


def test_calls_of_tools_are_allowed_or_refused_by_the_person(page):
    def weather(place: str) -> str:
        """The weather."""
        return f"sun in {place}"

    def calls(*names):
        return [FunctionCalls([LeapFunctionCall(name, {"place": "Rome"}, f"c{n}") for n, name in enumerate(names)])]

    tools = {"weather": ToolPolicy("ask"), "free": ToolPolicy("allow"), "never": ToolPolicy("deny")}
    services = PageServices(
        functions=[LeapFunction.from_callable(weather, name=name) for name in tools], policy=FunctionPolicy(tools)
    )
    scripts = [calls("weather", "free"), "Sunny.", calls("weather"), "Pity.", calls("never")]
    page, server = page(*scripts, page=services)
    settings(page)
    page.wait(lambda: "weather asks you. The weather." in page.text("#tool-list"))
    say(page, "Weather?")
    page.wait(lambda: "wants to run weather" in page.text(".consent [role=alert]"))
    assert '{"place": "Rome"}' in page.text(".consent") and len(server.runner.requests) == 1
    page.click(".consent button")
    page.wait(lambda: turns(page)[-1] == "Sunny.")
    ended(page)
    said = server.runner.requests[-1].messages
    assert [(each.role.value, each.text) for each in said[-2:]] == [("tool", "sun in Rome"), ("tool", "sun in Rome")]
    assert [each.name for each in server.runner.requests[-1].functions] == list(tools)

    page.click("#tool-free")
    say(page, "Again?")
    page.wait(lambda: shown(page, ".consent"))
    page.run("[...document.querySelectorAll('.consent button')].find(each => each.textContent === 'Refuse').click()")
    page.wait(lambda: turns(page)[-1] == "Pity.")
    assert "refused" in server.runner.requests[-1].messages[-1].text
    assert [each.name for each in server.runner.requests[-1].functions] == ["weather", "never"]
    ended(page)
    say(page, "Forbidden?")
    page.wait(lambda: "never was not run: the policy denies it" in page.text("#turns"))
    assert len(server.runner.requests) == 5


def test_a_schema_is_filled_in_as_a_form_and_the_answer_is_a_table(page):
    people = {
        "rows": [{"name": "Ada <b>", "born": 1815, "tags": ["maths"]}, {"name": "Alan", "born": 1912, "tags": []}]
    }
    page, server = page(json.dumps(people), '{"ok": true}')
    settings(page)
    page.click("#as-data")
    page.type("#prompt", "Who?" + ENTER)
    page.wait(lambda: "name a field" in page.text("#refused"))
    assert not server.runner.requests
    page.type("#fields input", "name")
    for name, kind in (("born", "whole number"), ("tags", "list of texts"), ("side", "one of")):
        page.click("#add-field")
        page.type("#fields li:last-child input", name)
        page.type("#fields li:last-child select", kind)
    page.type("#fields li:last-child input[placeholder='red, green']", "left, right")
    page.click("#several")
    page.type("#prompt", ENTER)
    page.wait(lambda: page.text(f"{LAST} .text th") == "name")
    schema = json.loads(server.runner.requests[-1].options.json_schema_constraint)
    fields = schema["properties"]["rows"]["items"]["properties"]
    assert fields["born"] == {"type": "integer"} and fields["side"] == {"enum": ["left", "right"]}
    cells = page.run(f"return [...document.querySelectorAll('{LAST} td')].map(each => each.textContent)")
    assert cells == ["Ada <b>", "1815", "maths", "Alan", "1912", ""]
    page.type("#schema", '{"type": "object"}')
    say(page, "Fine?")
    page.wait(lambda: page.text(f"{LAST} .text td") == "yes")
    assert json.loads(server.runner.requests[-1].options.json_schema_constraint) == {"type": "object"}


def test_sources_of_an_index_are_searched_and_listed(page, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "bread.md").write_text("# Bread\n\nThe oven must have 250 degrees.\n")
    update_index(tmp_path / "indexes" / "kitchen.db", IndexSettings((str(tmp_path / "notes"),)), None)
    page, server = page("250 [1].", page=PageServices(indexes=["kitchen"], index_directory=tmp_path / "indexes"))
    settings(page)
    page.type("#index", "kitchen")
    page.type("#system", "Be brief.")
    say(page, "How hot is the oven?")
    ended(page)
    system = server.runner.requests[-1].messages[0].text
    assert system.startswith("Be brief.") and "250 degrees" in system
    assert "Sources (1)" in page.text(f"{LAST} .sources") and "bread.md, line 3: Bread" in page.text(f"{LAST} .sources")


def test_a_conversation_is_saved_to_a_file_and_guides_are_read(page):
    guide = "# Serve\n\nAll [of](other.md) [it](host.md)."
    page, _ = page("**Yes**.", page=PageServices(guides={"host": "Serving"}, guide=lambda _name: guide))
    page.run(
        "window.saved = []; const real = URL.createObjectURL; HTMLAnchorElement.prototype.click = () => {};"
        "URL.createObjectURL = (blob) => { window.saved.push(blob); return real.call(URL, blob); }"
    )
    say(page, "Is it?")
    ended(page)
    for kind in ("markdown", "json"):
        page.click(f"#save-{kind}")
    markdown, messages = page.run("return Promise.all(window.saved.map(each => each.text()))")
    assert markdown == "# Is it?\n\n## User\n\nIs it?\n\n## Assistant\n\n**Yes**.\n"
    assert [ChatMessage.from_json(each).text for each in json.loads(messages)] == ["Is it?", "**Yes**."]
    page.click("#open-guides")
    page.wait(lambda: page.text("#reader-body h4") == "Serve" and shown(page, "#reader"))
    links = page.run("return [...document.querySelectorAll('#reader-body a')].map(each => each.textContent)")
    assert links == ["it"], "what is not there is no link"
    page.press(ESCAPE)
    page.wait(lambda: not shown(page, "#reader"))
    page.click("#open-metrics")
    page.wait(lambda: "leap_requests_total" in page.text("#reader-body"))


def axe():
    """axe-core's script, where it is installed: $LEAP_AXE, or a node_modules above this directory."""
    places = [parent / "node_modules" / "axe-core" / "axe.min.js" for parent in Path(__file__).resolve().parents]
    given = os.environ.get("LEAP_AXE")
    return next((path for path in ([Path(given)] if given else places) if path.is_file()), None)


def test_axe_finds_no_accessibility_problem(page, tmp_path):
    """In light and dark, narrow and wide, with everything open, and in the dialogs."""
    if axe() is None:
        pytest.skip("needs axe-core (npm install axe-core), or its axe.min.js in $LEAP_AXE")

    def look(place: str) -> str:
        """Look somewhere."""
        return place

    services = PageServices(
        sessions=tmp_path / "leap.db",
        functions=[LeapFunction.from_callable(look)],
        guides={"host": "Serving"},
        guide=lambda _name: "# Serve\n\n[All](host.md) of it: `x`\n\n| a | b |\n|---|---|\n| 1 | 2 |",
    )
    call = FunctionCalls([LeapFunctionCall("look", {"place": "up"}, "c0")])
    page, _ = page("**Yes**.\n\n```python\nx = 1\n```", '{"rows": [{"a": 1}]}', [call], page=services)
    page.run(axe().read_text("utf-8"))
    can(page, "vision", "audio", "thinking", "speech")
    settings(page)
    page.click("#as-data")
    page.type("#fields input", "a")
    for text in ("One", "Two"):
        say(page, text)
        ended(page)
    say(page, "Three")
    page.wait(lambda: shown(page, ".consent"))
    page.run("document.querySelector('#kept').open = true")

    def look_over(where):
        for scheme in ("light", "dark"):
            for width in (380, 1400):
                page.colours(scheme)
                page.width(width)
                found = page.run(
                    "return axe.run(document).then(({ violations }) =>"
                    " violations.map(each => [each.id, each.nodes.map(node => node.html)]))"
                )
                assert found == [], (where, scheme, width)
                root = "document.documentElement"
                assert page.run(f"return {root}.scrollWidth - {root}.clientWidth") <= 0, (where, width)

    look_over("conversation")
    for selector, open_it in (
        ("#reader", "document.querySelector('#open-guides').click()"),
        ("#key-dialog", "document.querySelector('#reader').close(); document.querySelector('#key-dialog').showModal()"),
    ):
        page.run(open_it)
        page.wait(lambda selector=selector: shown(page, selector))
        look_over(selector)
    page.width(0)
    page.colours("light")
