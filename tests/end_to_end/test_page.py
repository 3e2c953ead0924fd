"""The page for people, in a real headless browser that is driven over WebDriver."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("chromium-browser")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
SOON = 60.0

pytestmark = pytest.mark.skipif(not (DRIVER and BROWSER), reason="needs chromium and chromedriver (apt install both)")


class Browser:
    """One session of a browser."""

    def __init__(self, port: int) -> None:
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SOON)
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=900,900",
        ]
        options = {"binary": BROWSER, "args": arguments}
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._post("/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._session = f"/session/{made['sessionId']}"

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._http.post(path, json=body)
        value = answer.json()["value"]
        assert answer.status_code == 200, value
        return value

    def open(self, url: str) -> None:
        self._post(f"{self._session}/url", {"url": url})

    def run(self, script: str) -> Any:
        return self._post(f"{self._session}/execute/sync", {"script": script, "args": []})

    def type(self, selector: str, text: str) -> None:
        self._post(f"{self._session}/element/{self._find(selector)}/value", {"text": text})

    def click(self, selector: str) -> None:
        self._post(f"{self._session}/element/{self._find(selector)}/click", {})

    def text(self, selector: str) -> str:
        return str(self.run(f"return document.querySelector('{selector}')?.textContent || ''"))

    def wait(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + SOON
        while not is_so():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def log(self) -> list[str]:
        """What the page complained of."""
        entries = self._post(f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def close(self) -> None:
        self._http.delete(self._session)
        self._http.close()

    def _find(self, selector: str) -> str:
        found = self._post(f"{self._session}/element", {"using": "css selector", "value": selector})
        return str(found[ELEMENT])


@pytest.fixture
def browser(tmp_path) -> Iterator[Browser]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen([str(DRIVER), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + SOON
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/status")
                break
            except httpx.HTTPError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        opened = Browser(port)
        yield opened
        opened.close()
    finally:
        driver.kill()
        driver.wait()


def test_a_prompt_is_answered_and_a_job_is_cancelled(browser, start, program, tmp_path):
    process = start("serve", "builtin", "--port", "0", "--threads", "1", "--page", "--api-key", "s3cret")
    url = process.stdout.readline().decode().strip().removesuffix("/v1")
    process.stderr.readline()
    home = httpx.get(url + "/")
    assert home.status_code == 200 and "default-src 'none'" in home.headers["content-security-policy"]
    assert httpx.get(url + "/props").status_code == 401

    browser.open(url)
    browser.wait(lambda: browser.run("return document.querySelector('#key-dialog').open"))
    browser.type("#key", "s3cret\n")
    browser.wait(lambda: browser.text("#state") == "ready")
    assert "builtin" in browser.text("#models") and browser.text("#model") == "builtin"

    browser.type("#prompt", "What is the capital of France?")
    browser.click("#send")
    browser.wait(lambda: "Paris" in browser.text("#answer"))
    browser.wait(lambda: " tokens, " in browser.text("#counts"))

    id = program("generate", "--background", "-m", "builtin", "--max-tokens", "2000", "Count to 300.").stdout.strip()
    browser.wait(lambda: id in browser.text("#jobs"))
    browser.run(f"document.querySelector('button[data-job=\"{id}\"]')?.click()")
    browser.wait(lambda: "cancelled" in browser.text("#jobs"))
    program("jobs", "worker", "--stop")

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
