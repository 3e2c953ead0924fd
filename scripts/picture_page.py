"""Takes pictures of the page of ``leap serve --page``, light and dark, for the guides. Needs chromium and chromedriver.

python scripts/picture_page.py docs/pictures
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
        command = [*LEAP, "serve", "builtin", "--port", "0", "--threads", "1", "--page"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, stderr=subprocess.DEVNULL)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().decode().strip().removesuffix("/v1")
            background = [*LEAP, "generate", "--background", "-m", "builtin", "--max-tokens", "20", "Count to 9."]
            subprocess.run(background, env=environment, check=True, stdout=subprocess.DEVNULL)
            with open_browser() as browser:
                _take(browser, url, directory)
        finally:
            server.terminate()
            server.communicate()
            subprocess.run([*LEAP, "jobs", "worker", "--end"], env=environment, check=False, capture_output=True)


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
