"""SIGTERM ends a server soon, whatever it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

SERVER = """
import sys, time
from pathlib import Path
from leap_core.protocols.openai import requests
from leap_core.server import application, foreground
application.SHUTDOWN_SECONDS, application.END_SECONDS = 1, 2.0
def hang(*_):
    say("busy")
    time.sleep(300)
if sys.argv[1] == "document":
    requests.fetch = hang
else:
    foreground.load_as_made = hang
def say(text): print(text, flush=True)
foreground.serve(["builtin"], foreground.ServerSettings(), cwd=Path.cwd(), on_listening=say, on_ready=say)
"""
FILE = {"type": "file", "file": {"filename": "a.txt", "file_data": "aGk="}}
BODY = {"model": "builtin", "messages": [{"role": "user", "content": [FILE]}]}


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM")
@pytest.mark.parametrize("busy", ["document", "model"])
def test_a_busy_server_ends_on_sigterm(busy, tmp_path):
    variables = {**os.environ, "LEAP_HOME": str(tmp_path)}
    command = [sys.executable, "-c", SERVER, busy]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        try:
            url = process.stdout.readline().strip()
            if busy == "document":
                process.stdout.readline()
                request = urllib.request.Request(
                    f"{url}/chat/completions", json.dumps(BODY).encode(), {"Content-Type": "application/json"}
                )
                asking = ThreadPoolExecutor(1).submit(pytest.raises, OSError, urllib.request.urlopen, request)
                assert process.stdout.readline() == "busy\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            if busy == "document":
                assert b"the server is being stopped" in asking.result(100).value.read()
        finally:
            process.kill()
