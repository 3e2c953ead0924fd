"""A real headless browser, driven over WebDriver: for the test of the page and the pictures of it."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("chromium-browser")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
SOON = 150.0


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
            "--use-fake-device-for-media-stream",  # a microphone that beeps
            "--use-fake-ui-for-media-stream",
        ]
        options = {"binary": BROWSER, "args": arguments}
        # chromedriver's own waiting for a page sometimes misses its end on a busy machine: ``open`` waits instead
        capabilities = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "pageLoadStrategy": "none",
            "timeouts": {"script": int(1000 * SOON)},
        }
        made = self._post("/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._session = f"/session/{made['sessionId']}"

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._http.post(path, json=body)
        value = answer.json()["value"]
        assert answer.status_code == 200, value
        return value

    def open(self, url: str) -> None:
        """Go there, and wait until the new page is loaded."""
        self.run("window.isLeft = true")
        navigation = self._command("Page.navigate", url=url)
        assert "errorText" not in navigation, navigation
        if "loaderId" in navigation:  # no other place in the same page
            self.wait(lambda: self.run("return !window.isLeft && document.readyState === 'complete'"))

    def run(self, script: str, *arguments: object) -> Any:
        return self._post(f"{self._session}/execute/sync", {"script": script, "args": arguments})

    def press(self, *keys: str) -> None:
        """Press keys together, wherever the focus is."""
        downs = [{"type": "keyDown", "value": key} for key in keys]
        ups = [{"type": "keyUp", "value": key} for key in reversed(keys)]
        source = {"type": "key", "id": "keyboard", "actions": [*downs, *ups]}
        self._post(f"{self._session}/actions", {"actions": [source]})

    def type(self, selector: str, text: str) -> None:
        self._do(selector, "value", {"text": text})

    def click(self, selector: str) -> None:
        """Click in the middle of it, where nothing that sticks to the window's edge covers it."""
        self.run("document.querySelector(arguments[0])?.scrollIntoView({ block: 'center' })", selector)
        self._do(selector, "click", {})

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.textContent || ''", selector))

    def wait(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + SOON
        while not is_so():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def log(self) -> list[str]:
        """What the page complained of."""
        entries = self._post(f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def colours(self, scheme: str) -> None:
        """Prefer ``light`` or ``dark``, as a person's system would."""
        self._command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def width(self, pixels: int) -> None:
        """Show the page in a window so wide; 0 is the browser's own."""
        if pixels:
            size = {"width": pixels, "height": 900, "deviceScaleFactor": 0, "mobile": False}
            self._command("Emulation.setDeviceMetricsOverride", **size)
        else:
            self._command("Emulation.clearDeviceMetricsOverride")

    def new_window(self) -> str:
        """Go to a new window. Returns the one that was left, for ``to_window``."""
        left = str(self._http.get(f"{self._session}/window").json()["value"])
        self.to_window(self._post(f"{self._session}/window/new", {"type": "tab"})["handle"])
        return left

    def to_window(self, handle: str) -> None:
        self._post(f"{self._session}/window", {"handle": handle})

    def downloads_to(self, directory: Path) -> None:
        """Put downloads there, without a question."""
        self._command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(directory))

    def picture(self) -> bytes:
        """The whole page as PNG."""
        return base64.b64decode(self._command("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def close(self) -> None:
        self._http.delete(self._session)
        self._http.close()

    def _command(self, name: str, **parameters: object) -> Any:
        """Send the browser a command of its DevTools protocol."""
        return self._post(f"{self._session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def _do(self, selector: str, what: str, body: dict[str, Any]) -> None:
        """Do it to the element; once more where the page drew it anew in between."""
        for last in (False, False, True):
            found = self._post(f"{self._session}/element", {"using": "css selector", "value": selector})
            answer = self._http.post(f"{self._session}/element/{found[ELEMENT]}/{what}", json=body)
            value = answer.json()["value"]
            if last or answer.status_code == 200 or value["error"] != "stale element reference":
                break
        assert answer.status_code == 200, value


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser of its own, which ends with the context."""
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
        browser = Browser(port)
        yield browser
        browser.close()
    finally:
        driver.kill()
        driver.wait()
