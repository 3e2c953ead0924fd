"""Looking over extractions in a real headless browser: by keyboard, in a file and served."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from leap_core.tasks.review.documents import ReviewedDocument, corrected_document, read_reviews, write_reviews
from leap_core.tasks.review.page import page, page_data

from ..documents.test_reading import scan
from ..tasks.review.reviews import HOSTILE, a_review, plain, strange
from .browser import BROWSER, DRIVER, Browser, open_browser

pytestmark = pytest.mark.skipif(not (DRIVER and BROWSER), reason="needs chromium and chromedriver (apt install both)")
ENTER, ESCAPE, DOWN, SHIFT = "\ue007", "\ue00c", "\ue015", "\ue008"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


def show(browser: Browser, directory: Path, reviews: list[ReviewedDocument]) -> str:
    """Open the page of these documents as a file, with nothing kept from before."""
    path = directory / "r.html"
    path.write_text(page(page_data(reviews, 0.5, "r.jsonl")), encoding="utf-8", newline="")
    browser.open(path.as_uri())
    browser.run("localStorage.clear()")
    browser.open("about:blank")
    browser.open(path.as_uri())
    browser.log()
    return path.as_uri()


def keys(browser: Browser, text: str) -> None:
    for key in text:
        browser.press(key)


def saved(browser: Browser, directory: Path) -> Path:
    browser.downloads_to(directory)
    browser.press("s")
    path = directory / "r.jsonl"
    browser.wait(path.exists)
    return path


def status(browser: Browser) -> str:
    return browser.text("#said")


@pytest.mark.parametrize("width", [390, 1280])
def test_marks_are_at_pythons_offsets_and_hostile_text_stays_text(browser, tmp_path, width):
    browser.width(width)
    reviews = strange()
    show(browser, tmp_path, reviews)
    for number, review in enumerate(reviews):
        if number:
            browser.press("n")
        assert browser.text("#name") == review.file
        if review.text:
            assert browser.run("return document.querySelector('#source').textContent") == review.text
        for entry in review.evidence:
            marked = browser.run(
                "return [...document.querySelectorAll('mark.chosen')].map(e => e.textContent).join('')"
            )
            place = entry.get("place")
            assert marked == (review.text[place["start"] : place["end"]] if place else "")
            assert browser.run("return document.querySelector('#fields .chosen .path').textContent")
            browser.press("j")
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert "There is no text" in browser.text("#source")
    names = browser.run("return [...document.querySelectorAll('#documents bdi')].map(e => e.textContent)")
    assert names == [each.file for each in reviews] and HOSTILE in names
    assert (
        browser.run("return document.querySelectorAll('img:not(#picture), script:not([id]):not(:last-of-type)').length")
        == 0
    )
    assert browser.log() == []


def test_a_review_by_keyboard_is_saved(browser, tmp_path):
    browser.width(1280)
    reviews = plain()
    address = show(browser, tmp_path, reviews)
    assert browser.text("#name") == "b.txt", "the doubtful one is first"
    keys(browser, "c")
    browser.run("document.activeElement.value = ''")
    keys(browser, "Ann")
    browser.press(ENTER)  # the name; on to the age
    keys(browser, "c")
    keys(browser, "x")
    browser.press(ENTER)
    assert "not a whole number" in browser.text("[role=alert]")
    browser.press(ESCAPE)
    keys(browser, "r")
    keys(browser, "u")  # the age is without a decision again
    keys(browser, "c")
    keys(browser, "32")
    browser.press(ENTER)
    browser.press(SHIFT, "A")
    assert "accepted" in status(browser) and browser.text("#name") == "a.txt"
    keys(browser, "c")
    keys(browser, 'T "1"\\')
    browser.press(SHIFT, ENTER)
    keys(browser, "x")
    browser.press(ENTER)
    keys(browser, "c")
    keys(browser, "98765432109876543210")
    browser.press(ENTER)
    keys(browser, "c")
    keys(browser, "null")
    browser.press(ENTER)
    keys(browser, "c")
    browser.press(DOWN)  # the other kind
    browser.press(ENTER)
    keys(browser, "r")
    assert "nothing to reject" in status(browser)
    keys(browser, "c")
    keys(browser, "{}")
    browser.press(ENTER)
    assert "a JSON object" in browser.text("[role=alert]")
    browser.run("document.activeElement.value = arguments[0]", '["a",\n"b"]')
    browser.press(ENTER)
    assert "All is decided" in status(browser)

    before = browser.text("#progress")
    browser.open(address)  # nothing is lost
    assert browser.text("#progress") == before and before.startswith("10 of 10 values")
    path = saved(browser, tmp_path)
    found = read_reviews(path)
    assert [each.file for each in found] == ["a.txt", "b.txt"] and all(each.undecided == 0 for each in found)
    big = corrected_document(found[0])
    assert big == {"name": 'T "1"\\\nx', "age": 98765432109876543210, "price": None, "kind": "firm", "tags": ["a", "b"]}
    assert corrected_document(found[1]) == {"name": "Ann", "age": 32, "tags": []}
    undone = [[{k: v for k, v in e.items() if k not in ("decision", "corrected")} for e in r.evidence] for r in found]
    assert undone == [list(each.evidence) for each in reviews]
    assert '"value": 12345678901234567890' in path.read_text() and '"value": 3.0' in path.read_text()
    assert browser.log() == []


def test_missing_elements_are_added_to_a_list(browser, tmp_path):
    browser.width(1280)
    show(browser, tmp_path, [a_review("a.txt", "Tim likes tea, pie and jam.", {"tags": ["tea"]})])
    browser.press(SHIFT, "A")
    assert "All is decided" in status(browser) and browser.text("#progress").startswith("5 of 5 values")
    browser.click("#fields li:nth-child(2) .field")
    assert browser.text("#fields [aria-current] .path") == "tags[+]"
    keys(browser, "c")
    keys(browser, "pie")
    browser.press(ENTER)
    assert "a JSON list" in browser.text("[role=alert]")
    browser.run("document.activeElement.value = arguments[0]", '["pie", "jam"]')
    browser.press(ENTER)
    assert browser.text("#progress").startswith("6 of 6 values")
    (found,) = read_reviews(saved(browser, tmp_path))
    assert corrected_document(found) == {"tags": ["tea", "pie", "jam"]} and browser.log() == []


def test_values_of_several_types_and_large_listed_numbers_are_typed_and_kept_by_mouse(browser, tmp_path):
    browser.width(1280)
    union = {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}
    large = {"enum": [12345678901234567890, 12345678901234567891]}
    schema = {"type": "object", "properties": {"a": union, "b": union, "c": union, "d": large}}
    document = {"a": 1, "b": 2, "c": 3, "d": 12345678901234567890}
    show(browser, tmp_path, [a_review("a.txt", "1 2 3 12345678901234567890", document, schema=schema)])
    for typed in ("41", "forty"):
        keys(browser, "c")
        keys(browser, typed)
        browser.click(".editor button")  # Keep
    keys(browser, "c")
    browser.click(".editor button:nth-of-type(2)")  # Leave
    assert browser.run("return !document.querySelector('.editor')") and browser.text("#fields .chosen .decision") == ""
    keys(browser, "c")
    browser.click(".editor button:nth-of-type(3)")  # null
    keys(browser, "c")
    keys(browser, "12345678901234567891")
    browser.press(ENTER)
    (found,) = read_reviews(saved(browser, tmp_path))
    assert corrected_document(found) == {"a": 41, "b": "forty", "c": None, "d": 12345678901234567891}


def test_everything_works_by_mouse_and_has_labels_for_screen_readers(browser, tmp_path):
    browser.width(390)
    show(browser, tmp_path, plain())
    browser.click("[data-act=help]")
    assert browser.run("return document.querySelector('#help').open")
    browser.press(ESCAPE)
    browser.click("#fields li:nth-child(2) .field")
    browser.click("[data-act=accept]")
    assert browser.text("#fields li:nth-child(2) .decision") == "accepted"
    browser.click("#source mark")
    assert browser.text("#fields [aria-current] .path") == "age"
    browser.click("[data-act=correct]")
    unlabelled = browser.run(
        "return [...document.querySelectorAll('input,select,textarea,button,[role=region]')]"
        ".filter(e => !(e.labels?.length || e.textContent.trim() || e.ariaLabel)).map(e => e.outerHTML)"
    )
    assert unlabelled == []
    for scheme in ("light", "dark"):
        browser.colours(scheme)
        assert browser.run(CONTRASTS) >= 4.5, scheme


CONTRASTS = """
const SHARES = [0.2126, 0.7152, 0.0722];
const parts = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = (colour) => parts(colour).map((v) => linear(v / 255)).reduce((sum, v, n) => sum + v * SHARES[n], 0);
const ratios = [];
for (let n = 0; n < 8; n += 1) for (const chosen of ["", " chosen"]) {
  const mark = document.createElement("mark");
  mark.className = `c${n}${chosen}`;
  document.querySelector("#source").append(mark);
  const style = getComputedStyle(mark);
  const [one, other] = [light(style.color), light(style.backgroundColor)].sort((a, b) => b - a);
  ratios.push((one + 0.05) / (other + 0.05));
  mark.remove();
}
return Math.min(...ratios);
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_the_selected_value_and_its_mark_are_visible(browser, tmp_path, width):
    browser.width(width)
    schema = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}}}}
    names = [f"Name{n:02}" for n in range(40)]
    text = "".join(f"{name}{chr(10) * 9}" for name in names)
    show(browser, tmp_path, [a_review("a.txt", text, {"names": names}, schema=schema)])
    for key, count in (("j", 39), ("k", 30)):
        keys(browser, key * count)
        for part in ("mark.chosen", "#fields .chosen"):
            assert browser.run(ON_TOP, part), f"{part} after {key} at {width}"


ON_TOP = """
const part = document.querySelector(arguments[0]);
const box = part.getBoundingClientRect();
return [box.top + 2, box.bottom - 2].every((y) => part.contains(document.elementFromPoint(box.left + 9, y)));
"""


def test_a_browser_without_storage_is_reported(browser, tmp_path):
    show(browser, tmp_path, plain())
    browser.run("Storage.prototype.setItem = () => { throw new Error('full') }")
    keys(browser, "a")
    assert "keeps nothing: save r.jsonl" in browser.text("#kept.bad")
    assert read_reviews(saved(browser, tmp_path))[1].evidence[0]["decision"] == "accept"


def test_decisions_that_did_not_fit_are_stored_when_there_is_space(browser, tmp_path):
    address = show(browser, tmp_path, plain())
    browser.run(
        "window.kept = Storage.prototype.setItem; Storage.prototype.setItem = () => { throw new Error('full') }"
    )
    keys(browser, "an")
    assert "keeps nothing" in browser.text("#kept.bad")
    browser.run("Storage.prototype.setItem = window.kept")
    keys(browser, "a")
    assert "Kept in this browser" in browser.text("#kept")
    browser.open(address)
    assert browser.text("#progress").startswith("2 of "), "the first document's decision is there too"


def test_undo_keeps_later_decisions_of_another_window(browser, tmp_path):
    address = show(browser, tmp_path, plain())
    keys(browser, "a")
    first = browser.new_window()
    browser.open(address)
    browser.click("#fields li .field")
    keys(browser, "r")
    browser.to_window(first)
    browser.wait(lambda: browser.text("#fields li .decision") == "rejected")
    keys(browser, "u")
    assert "another window" in status(browser) and browser.text("#fields li .decision") == "rejected"


def test_two_windows_of_one_file_lose_no_decisions(browser, tmp_path):
    browser.width(1280)
    address = show(browser, tmp_path, plain())
    first = browser.new_window()
    browser.open(address)
    keys(browser, "a")
    second = browser.run("return document.querySelector('#name').textContent")
    browser.to_window(first)
    browser.wait(lambda: browser.text("#fields li .decision") == "accepted")
    keys(browser, "jr")
    browser.open(address)
    decided = browser.run("return [...document.querySelectorAll('.decision')].map(e => e.textContent)")
    assert (second, decided[:2]) == ("b.txt", ["accepted", "rejected"])


def test_a_scan_is_shown_beside_its_text(browser, tmp_path):
    browser.width(1280)
    (tmp_path / "scan.pdf").write_bytes(scan("Tim", "19"))
    review = a_review("scan.pdf", "Tim\n\f19\n\f", {"name": "Tim", "age": 19})
    data = page_data([review, *plain()], 0.5, "r.jsonl", tmp_path)
    assert list(data["pictures"]) == ["0"] and list(data["pictures"]["0"]) == ["1", "2"]
    (tmp_path / "r.html").write_text(page(data), encoding="utf-8", newline="")
    browser.open((tmp_path / "r.html").as_uri())
    browser.run("[...document.querySelectorAll('#documents button')].find(e => e.textContent.includes('scan')).click()")
    for key, number in (("", 1), ("j", 2), ("k", 1)):
        keys(browser, key)
        browser.wait(lambda: browser.run("return document.querySelector('#picture').naturalWidth") > 300)
        shown = browser.run("const i = document.querySelector('#picture'); return [i.alt, i.src, i.offsetWidth > 100]")
        assert shown == [f"Page {number} of scan.pdf", data["pictures"]["0"][str(number)], True]
    browser.press("p")
    assert browser.run("return document.querySelector('#seen').hidden") and browser.log() == []


def test_many_documents_are_listed_and_only_one_is_shown(browser, tmp_path):
    browser.width(1280)
    one = a_review("1.txt", "Tim 19", {"age": 19})
    show(browser, tmp_path, [replace(one, file=f"{n}.txt", text=f"Tim 19 {n} " * 500) for n in range(500)])
    assert browser.run("return document.querySelectorAll('#documents button').length") == 500
    assert browser.run("return document.querySelectorAll('mark').length") == 1
    browser.press("p")
    assert "first document" in status(browser)
    browser.press("n")
    assert browser.text("#name") == "1.txt"


def serve(start, *arguments: str) -> tuple[Any, str]:
    process = start("extract", *arguments)
    for line in iter(process.stderr.readline, b""):
        if b"http://" in line:
            return process, line.decode().split()[1]
    raise AssertionError("no address")


def test_served_decisions_are_written_at_once(browser, start, tmp_path):
    (tmp_path / "tim.txt").write_text("Tim is 19 years old.")
    process, address = serve(start, "--json-schema", "full_name, age int", "--review-serve", "r.jsonl", "tim.txt")
    path = tmp_path / "r.jsonl"
    browser.open(address)
    browser.wait(lambda: "r.jsonl" in browser.text("#kept"))
    assert browser.run("return location.hash") == "" and browser.text("#name") == "tim.txt"
    keys(browser, "a")
    browser.wait(lambda: "Every decision is saved" in browser.text("#kept") and '"accept"' in path.read_text())

    home, _, key = address.partition("/#key=")
    body = {"document": 0, "decisions": [{"entry": 1, "was": None, "now": {"decision": "reject"}}]}
    with httpx.Client(base_url=home, headers={"Authorization": f"Bearer {key}"}) as other:
        assert other.post("/review/decisions", json=body).status_code == 200  # as another window does
    keys(browser, "a")
    browser.wait(lambda: "another window" in status(browser))
    assert browser.text("#fields li:nth-child(2) .decision") == "rejected"
    assert [each["decision"] for each in read_reviews(path)[0].evidence] == ["accept", "reject"]
    assert [line for line in browser.log() if "409" not in line] == []
    process.kill()  # what was acknowledged is there
    process.wait()
    assert browser.text("#fields .chosen .path") == "age", "one stays where one was"
    keys(browser, "x")
    browser.wait(lambda: "leap does not answer" in browser.text("#kept"))
    assert browser.text("#fields li:nth-child(2) .decision") == "", "it stays on the page"

    process, address = serve(start, "--review-serve", "r.jsonl")
    browser.open(address)
    browser.wait(lambda: browser.text("#progress").startswith("2 of 2 values"))
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert b"decided: 2 of 2 values, in r.jsonl; leap extract --apply r.jsonl" in process.stderr.read()


def test_a_refused_decision_does_not_affect_others(browser, start, tmp_path):
    (tmp_path / "tim.txt").write_text("Tim is 19 years old.")
    _, address = serve(start, "--json-schema", "full_name, age int", "--review-serve", "r.jsonl", "tim.txt")
    browser.open(address)
    browser.wait(lambda: "r.jsonl" in browser.text("#kept"))
    home, _, key = address.partition("/#key=")
    body = {"document": 0, "decisions": [{"entry": 0, "was": None, "now": {"decision": "reject"}}]}
    with httpx.Client(base_url=home, headers={"Authorization": f"Bearer {key}"}) as other:
        assert other.post("/review/decisions", json=body).status_code == 200
    browser.run(
        "const real = fetch; window.fetch = (path, options) =>"
        " new Promise((go) => setTimeout(() => go(real(path, options)), options.method ? 700 : 0))"
    )
    keys(browser, "ac2")  # the name is refused while the age is typed
    browser.wait(lambda: "another window" in browser.text("#kept"))
    time.sleep(0.3)
    keys(browser, "0")
    browser.press(ENTER)
    browser.wait(lambda: "another window" in status(browser) and "Every decision is saved" in browser.text("#kept"))
    name, age = read_reviews(tmp_path / "r.jsonl")[0].evidence
    assert name["decision"] == "reject" and age["corrected"] in (20, 1920)


def test_a_full_disk_is_reported_and_the_decision_is_resent(browser, start, tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "r.jsonl"
    write_reviews(path, plain())
    process, address = serve(start, "--review-serve", "r.jsonl")
    browser.open(address)
    browser.wait(lambda: browser.text("#name") == "b.txt")
    limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    keys(browser, "a")
    browser.wait(lambda: "Not saved" in browser.text("#kept"))
    assert browser.text("#fields li:nth-child(1) .decision") == "accepted"
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
    browser.wait(lambda: "Every decision is saved" in browser.text("#kept"))
    assert read_reviews(path)[1].evidence[0]["decision"] == "accept"
