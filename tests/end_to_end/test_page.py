"""The page for people, in a real headless browser."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from .browser import BROWSER, DRIVER, Browser, open_browser
from .conftest import ROOT

pytestmark = pytest.mark.skipif(not (DRIVER and BROWSER), reason="needs chromium and chromedriver (apt install both)")


@pytest.fixture
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


def batch_of(url: str, key: str, question: str, most: int) -> str:
    """A batch of one question, made by a client of the server; its job's id."""
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key=key) as client:
        body = {"model": "builtin", "messages": [{"role": "user", "content": question}], "max_tokens": most}
        line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body})
        file = client.files.create(file=("in.jsonl", line.encode()), purpose="batch")
        client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    (job,) = httpx.get(f"{url}/leap/jobs", headers={"Authorization": f"Bearer {key}"}).json()["jobs"]
    return str(job["id"])


def test_a_prompt_is_answered_and_a_job_is_cancelled(browser, start, program, tmp_path):
    process = start(
        "serve",
        "builtin",
        "--port",
        "0",
        "--threads",
        "1",
        "--web-ui",
        "--api-key",
        "s3cret",
        "--models",
        "builtin-embed",
    )
    url = process.stdout.readline().decode().strip().removesuffix("/v1")
    process.stderr.readline()
    home = httpx.get(url + "/")
    assert home.status_code == 200 and "default-src 'none'" in home.headers["content-security-policy"]
    assert httpx.get(url + "/props").status_code == 401

    browser.open(url)
    browser.wait(lambda: browser.run("return document.querySelector('#key-dialog').open"))
    assert browser.run("return document.querySelector('#key-refused').hidden")
    browser.type("#key", "wrong\n")
    browser.wait(lambda: browser.run("return document.querySelector('#key-refused').checkVisibility()"))
    browser.run("document.querySelector('#key').value = ''")
    browser.type("#key", "s3cret\n")
    browser.wait(lambda: browser.text("#state") == "ready")
    assert (
        "builtin" in browser.text("#models")
        and browser.run("return document.querySelector('#model').value") == "builtin"
    )
    assert "builtin-embed" not in browser.text("#model"), "it writes nothing"
    browser.run("document.querySelector('#served').open = true")
    browser.click("button[aria-label='Load builtin-embed']")
    browser.wait(lambda: browser.text("button[aria-label='Unload builtin-embed']"))
    browser.click("button[aria-label='Unload builtin-embed']")
    browser.wait(lambda: browser.text("button[aria-label='Load builtin-embed']"))

    browser.type("#prompt", "What is the capital of France?\n")
    browser.wait(lambda: " tokens, " in browser.text("#turns li:last-child .counts"))
    browser.wait(lambda: "Paris" in browser.text("#turns li:last-child .text p"))  # rendered as Markdown
    browser.wait(lambda: "at most 0.0" not in browser.text("#most") and "at most" in browser.text("#most"))

    id = batch_of(url, "s3cret", "Count to 300.", 2000)
    browser.wait(lambda: id in browser.text("#jobs"))
    browser.run(f"document.querySelector('tr[data-id=\"{id}\"] button')?.click()")
    browser.wait(lambda: "cancelled" in browser.text("#jobs"))
    program("jobs", "worker", "--shutdown")

    unlabelled = browser.run(
        "return [...document.querySelectorAll('input,select,textarea,button')]"
        ".filter(e => !(e.labels?.length || e.textContent.trim() || e.ariaLabel)).map(e => e.outerHTML)"
    )
    assert unlabelled == []
    foreign = browser.run(
        "return performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin)"
        " && !n.startsWith('data:'))"
    )
    assert foreign == []
    complaints = [line for line in browser.log() if "401" not in line]
    assert complaints == []


def test_an_answer_that_the_server_ends_in_the_middle_stays_on_the_page(browser, start, tmp_path):
    """And without an API key, what is private has the key that stands in the address."""
    process = start("serve", "builtin", "--port", "0", "--threads", "1", "--web-ui", "--sessions")
    url = process.stdout.readline().decode().strip().removesuffix("v1")
    address = process.stdout.readline().decode().strip()
    assert address.startswith(url + "#key=") and httpx.get(url + "leap/sessions").status_code == 401
    process.stderr.readline()
    browser.open(address)
    browser.wait(lambda: browser.text("#state") == "ready" and "leap chat -c" in browser.text("#kept-where"))
    assert browser.run("return location.hash") == ""
    grammar = {"type": "array", "items": {"type": "integer"}, "minItems": 3000, "maxItems": 3000}
    browser.run("document.querySelector('#settings').open = true")
    browser.click("#as-data")
    browser.run("document.querySelector('#schema').value = arguments[0]", json.dumps(grammar))
    browser.type("#prompt", "Count.\n")
    text = "return document.querySelector('#turns li:last-child .text').textContent"
    browser.wait(lambda: len(browser.run(text)) > 20)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    browser.wait(lambda: "Error: " in browser.text("#turns li:last-child .counts"))
    assert len(browser.run(text)) > 20 and browser.text("#turns li .text") == "Count."
    browser.wait(lambda: "does not answer" in browser.text("#state"))
    assert browser.run("return [...document.querySelectorAll('.of-models')].every(part => !part.hidden)")


@pytest.mark.parametrize("options", [[], ["--sessions"]])
def test_the_prompt_has_the_focus_and_a_reload_keeps_the_conversation(browser, start, options, tmp_path):
    """Also on a phone, where nothing is cut; a second tab gets the key of the first."""
    process = start("serve", "builtin", "--port", "0", "--threads", "1", "--web-ui", "--api-key", "s3cret", *options)
    url = process.stdout.readline().decode().strip().removesuffix("/v1")
    process.stderr.readline()
    browser.width(390)
    browser.open(f"{url}/#key=s3cret")
    browser.wait(lambda: browser.text("#state") == "ready")
    assert browser.run("return document.activeElement.id") == "prompt"
    below = "return innerHeight - document.querySelector('#ask').getBoundingClientRect().bottom"
    assert abs(browser.run(below)) < 2, "the box is at the bottom of an empty page"
    browser.press(*"Hi", "\ue007")
    browser.wait(lambda: " tokens, " in browser.text("#turns li:last-child .counts"))
    browser.wait(lambda: browser.text("#conversations [aria-current]") == "Hi")
    assert abs(browser.run(below)) < 2
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    wide = "return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility()" + (
        " && !e.matches('.unseen, .skip') && e.getBoundingClientRect().right > 391).map(e => e.outerHTML.slice(0, 200))"
    )
    assert browser.run(wide) == []
    assert browser.run("return getComputedStyle(document.querySelector('#models td'), '::before').content") != "none"

    said = browser.run("return [...document.querySelectorAll('#turns .text')].map(each => each.textContent)")
    browser.run("location.reload()")
    browser.wait(lambda: browser.text("#state") == "ready")
    browser.wait(lambda: browser.text("#turns li:last-child .text") == said[-1])
    assert len(said) == 2 and browser.run("return document.activeElement.id") == "prompt"

    browser.new_window()
    browser.open(url)
    browser.wait(lambda: browser.text("#state") == "ready")
    assert not browser.run("return document.querySelector('#key-dialog').open")
    assert browser.run("return document.querySelectorAll('#turns li').length") == 0
    browser.wait(lambda: "Hi" in browser.text("#conversations"))
    browser.run("document.querySelector('#kept').open = true")
    browser.click("#conversations .title")
    browser.wait(lambda: browser.text("#turns li:last-child .text") == said[-1])


def test_the_page_of_jobs_shows_a_batch_and_cancels_it(browser, start, program, tmp_path):
    process = start("jobs", "page")
    address = process.stdout.readline().decode().strip()
    url, _, key = address.partition("/#key=")
    assert httpx.get(url + "/leap/jobs").status_code == 401 and len(key) > 15
    lines = [json.dumps({"prompt": f"Count to {n + 100}.", "max_tokens": 200}) for n in range(300)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    done = program("batch", "in.jsonl", "-o", "out.jsonl", "-m", "builtin", "--background", "--concurrency", "1")
    id = done.stdout.strip()

    browser.open(address)
    browser.wait(lambda: id in browser.text("#jobs"))
    assert browser.text("#state") == "no model is served here"
    assert browser.run("return location.hash") == "", "the key does not stay in the address"
    assert browser.run("return [...document.querySelectorAll('.of-models')].every(part => part.hidden)")
    browser.wait(lambda: " of 300 " in browser.text("#jobs"))
    assert browser.run("return document.querySelector('progress').ariaLabel") == f"Progress of job {id}"
    browser.run(f"document.querySelector('tr[data-id=\"{id}\"] button')?.click()")
    browser.wait(lambda: "cancelled" in browser.text("#jobs"))
    program("jobs", "worker", "--shutdown")
    assert browser.log() == []


def test_the_key_is_not_among_the_arguments_of_the_browser(start, variables, tmp_path):
    seen = tmp_path / "seen"
    program = tmp_path / "mybrowser"
    program.write_text(f'#!/bin/sh\necho "$@" > {seen}.new; cat "${{1#file://}}" >> {seen}.new; mv {seen}.new {seen}\n')
    program.chmod(0o755)
    variables["BROWSER"] = f"{program} %s"
    process = start("jobs", "page", "--open")
    address = process.stdout.readline().decode().strip()
    deadline = time.monotonic() + 100
    while not seen.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    arguments, page = seen.read_text().split("\n", 1)
    key = address.partition("#key=")[2]
    assert key and key not in arguments and address in page


def test_the_pictures_of_the_page_are_made_by_a_script(variables, tmp_path):
    script = ROOT / "scripts" / "picture_page.py"
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["page-dark.png", "page-light.png"]
    light, dark = ((tmp_path / f"page-{scheme}.png").read_bytes() for scheme in ("light", "dark"))
    assert light.startswith(b"\x89PNG") and dark.startswith(b"\x89PNG") and light != dark
