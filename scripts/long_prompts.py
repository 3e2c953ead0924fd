"""Six clients send prompts of 60 MB to a server of leap's and leave: how long /health takes, what memory and work stay.

    python scripts/long_prompts.py [MODEL] [--megabytes 60] [--clients 6] [--stay SECONDS]

It starts ``leap serve`` of its own, needs no network, and prints the measured values beside what is wanted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit


def process_state(pid: int) -> tuple[float, float]:
    """Resident MB, and seconds of processor time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6
    return resident, (int(fields[11]) + int(fields[12])) / 100


def send(port: int, megabytes: int, stay: float, answers: list[str]) -> None:
    """One prompt from one client, who leaves after ``stay`` seconds."""
    content = "lorem ipsum " * (megabytes * 1_000_000 // 12)
    body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=stay)
    try:
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answers.append(f"{answer.status} {json.loads(answer.read())['error']['code']}")
    except OSError as error:
        answers.append(type(error).__name__)
    finally:
        connection.close()


def health(port: int) -> float:
    """Seconds until /health answers."""
    start = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/health")
    connection.getresponse().read()
    connection.close()
    return time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="builtin")
    parser.add_argument("--megabytes", type=int, default=60)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--stay", type=float, default=25.0)
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "leap_cli", "serve", arguments.model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = urlsplit(server.stdout.readline().strip()).port
            assert port is not None
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not _is_ready(port):
                time.sleep(0.1)
            health(port)
            before, _ = process_state(server.pid)
            answers: list[str] = []
            given = (port, arguments.megabytes, arguments.stay, answers)
            clients = [threading.Thread(target=send, args=given) for _ in range(arguments.clients)]
            for client in clients:
                client.start()
            slowest, most = 0.0, before
            while any(client.is_alive() for client in clients):
                slowest = max(slowest, health(port))
                most = max(most, process_state(server.pid)[0])
                time.sleep(0.05)
            time.sleep(2)
            after, used = process_state(server.pid)
            time.sleep(1)
            work = process_state(server.pid)[1] - used
            print(f"answers: {', '.join(sorted(answers))}")
            print(f"/health, slowest: {slowest:.2f} s (wanted: below 1)")
            print(f"memory: {before:.0f} MB before, {most:.0f} at most, {after:.0f} after 2 s (wanted: as before)")
            print(f"processor time in the third second after they left: {work:.2f} s (wanted: 0)")
            return int(slowest > 1 or after > 1.3 * before + 50 or work > 0.1)
        finally:
            server.terminate()


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
