"""Takes pictures of the page of ``leap serve --web-ui``, light and dark. Needs chromium and chromedriver.

python scripts/picture_page.py docs/pictures
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.end_to_end.browser import Browser, open_browser  # noqa: E402 - the tests' browser is ours too

LEAP = [sys.executable, "-m", "leap_cli"]
QUESTION = "What is the capital of France?"
SETTLE_SECONDS = 5.0
"""For the plot of the speed to have a few points."""


def main(directory: Path) -> None:
    """Serve the built-in model, ask it something, have a job done beside it, and take the pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="leap-page-", ignore_cleanup_errors=True) as home:
        environment = {**os.environ, "LEAP_HOME": home}
        command = [*LEAP, "serve", "builtin", "--port", "0", "--threads", "1", "--web-ui"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, stderr=subprocess.DEVNULL)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().decode().strip().removesuffix("/v1")
            _submit(url)
            with open_browser() as browser:
                _take(browser, url, directory)
        finally:
            server.terminate()
            server.communicate()
            subprocess.run([*LEAP, "jobs", "worker", "--shutdown"], env=environment, check=False, capture_output=True)


def _submit(url: str) -> None:
    """A batch of one line: a server shows the jobs that it has made itself."""
    body = {"model": "builtin", "messages": [{"role": "user", "content": "Count to 9."}], "max_tokens": 20}
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}).encode()
    with httpx.Client(base_url=url, timeout=30) as client:
        file = client.post("/v1/files", files={"file": ("in.jsonl", line)}, data={"purpose": "batch"}).json()["id"]
        batch = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        client.post("/v1/batches", json=batch).raise_for_status()


def _take(browser: Browser, url: str, directory: Path) -> None:
    browser.open(url)
    browser.wait(lambda: browser.text("#state") == "ready")
    browser.type("#prompt", QUESTION)
    browser.click("#send")
    browser.wait(lambda: " tokens, " in browser.text("#turns li:last-child .counts"))
    browser.wait(lambda: "succeeded" in browser.text("#jobs"))
    time.sleep(SETTLE_SECONDS)
    for scheme in ("light", "dark"):
        browser.colours(scheme)
        (directory / f"page-{scheme}.png").write_bytes(browser.picture())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
