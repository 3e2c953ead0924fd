"""What tests of the page do in its browser, and see there."""

from __future__ import annotations

import pytest

from ..end_to_end.browser import BROWSER, DRIVER

needs_browser = pytest.mark.skipif(
    not (DRIVER and BROWSER), reason="needs chromium and chromedriver (apt install both)"
)

ENTER, ESCAPE, SHIFT = "\ue007", "\ue00c", "\ue008"
LAST = "#turns li:last-child"


def say(page, text):
    before = page.run("return document.querySelectorAll('#turns li').length")
    page.type("#prompt", text + ENTER)
    page.wait(lambda: page.run("return document.querySelectorAll('#turns li').length") >= before + 2)


def ended(page):
    return page.wait(lambda: not page.run("return document.querySelector('#turns').ariaBusy") and counts(page))


def counts(page):
    return page.text(f"{LAST} .counts")


def turns(page):
    texts = "return [...document.querySelectorAll('#turns .text')].map(each => each.textContent.trim())"
    return page.run(texts)


def asked(server, n=-1):
    return [(message.role.value, message.text) for message in server.runner.requests[n].messages]


def can(page, *abilities):
    """Have the model be of these abilities: the scripted one says them nowhere."""
    page.run(
        "const real = window.fetch, shown = JSON.stringify({ capabilities: [...arguments] });"
        "window.fetch = (path, options) =>"
        " path === 'api/show' ? Promise.resolve(new Response(shown)) : real(path, options);"
        "document.querySelector('#model').dispatchEvent(new Event('change'))",
        *abilities,
    )


def shown(page, selector):
    return page.run("return document.querySelector(arguments[0])?.checkVisibility() || false", selector)


def settings(page):
    page.run("document.querySelector('#settings').open = true")


def focus(page):
    return page.run("return document.activeElement.id")
