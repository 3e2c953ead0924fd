"""The HTTP side of the fake hub: what it answers, and how it misbehaves where a test wants that."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from .hub_content import Fault, HubContent, HubFile

HUB, STORAGE = "hub", "storage"
PIECE = 256 * 1024
SEND_BUFFER = 64 * 1024
"""Small, so that the bytes counted as served are the bytes that were received, give or take this much."""


class HubServer(ThreadingHTTPServer):
    """One of the hub's two hosts, on a port of its own."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, hub: HubContent, host: str, certificate: Path | None, key: Path | None) -> None:
        self.hub = hub
        self.host = host
        self.tls: ssl.SSLContext | None = None
        if certificate is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate, key)
        self._open: set[socket.socket] = set()
        self._serving: list[threading.Thread] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name=f"fake-{host}", daemon=True)

    @property
    def address(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._serving:
            thread.join(5)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        thread = threading.Thread(target=self._serve, args=(request, client_address), daemon=True)
        self._serving = [other for other in self._serving if other.is_alive()] + [thread]
        thread.start()

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            if self.tls is not None:
                self._open.discard(request)
                request = self.tls.wrap_socket(request, server_side=True)
                self._open.add(request)
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client went away, which is what these tests are about
        finally:
            self._open.discard(request)
            self.shutdown_request(request)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0
    server: HubServer

    def do_GET(self) -> None:
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.entry = hub.write_down(self.server.host, self.command, self.path, headers)
        fault = hub.take_fault(path, ("status",))
        if fault is not None:
            extra = {"Retry-After": fault.retry_after} if fault.retry_after is not None else {}
            return self._answer(fault.status, {"error": "as told"}, extra | fault.headers)
        if self.server.host == STORAGE:
            return self._storage(path)
        if path == "/api/models":
            return self._search()
        if path.startswith("/api/models/"):
            return self._api(path)
        if path == "/api/edge-sdk/model-manifest":
            return self._registry()
        return self._resolve(path)

    do_HEAD = do_GET

    def _search(self) -> None:
        query, hub = parse_qs(urlsplit(self.path).query), self.server.hub
        expanded, most = query.get("expand[]", []), int(query.get("limit", ["1000"])[0])
        entries: list[dict[str, Any]] = []
        for repo in hub.repositories(query.get("search", [""])[0])[:most]:
            about = {"gguf": hub.described.get(repo), "downloads": 7}
            entries.append({"id": repo, **{key: about[key] for key in expanded if about.get(key) is not None}})
        return self._answer(200, entries)

    def _api(self, path: str) -> None:
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(tree|revision)/([^/]+))?", path)
        entry = self.server.hub.files_of(match[1], match[3] or "main") if match else None
        if match is None or entry is None:
            has_repository = bool(match) and self.server.hub.files_of(match[1], "main") is not None  # type: ignore[index]
            code = "RevisionNotFound" if has_repository else "RepoNotFound"
            return self._answer(404, {"error": "not found"}, {"X-Error-Code": code})
        if self._refused(match[1]):
            return None
        commit, files = entry
        if match[2] == "tree":
            entries = [_tree_entry(file) for _, file in sorted(files.items())]
            return self._answer(200, entries, {"X-Repo-Commit": commit})
        with_blobs = "blobs" in parse_qs(urlsplit(self.path).query)
        siblings = [_sibling(file, with_blobs) for _, file in sorted(files.items())]
        gated = "auto" if match[1] in self.server.hub.gated else False
        return self._answer(200, {"id": match[1], "sha": commit, "gated": gated, "siblings": siblings})

    def _resolve(self, path: str) -> None:
        hub = self.server.hub
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        entry = hub.files_of(match[1], match[2]) if match else None
        file = entry[1].get(match[3]) if match and entry else None
        if match is None or entry is None or file is None:
            return self._answer(404, {"error": "not found"}, {"X-Error-Code": "EntryNotFound"})
        if self._refused(match[1]):
            return None
        headers = {"X-Repo-Commit": entry[0], "Accept-Ranges": "bytes"}
        if not file.lfs:
            return self._send_file(file, headers)
        location = f"{hub.storage_url}/storage/{file.sha256}/{quote(Path(file.name).name)}?signature=x"
        linked = {"X-Linked-Size": str(file.size), "X-Linked-Etag": f'"{file.sha256}"', "Location": location}
        return self._answer(302, {}, headers | linked)

    def _storage(self, path: str) -> None:
        kind, _, rest = path.lstrip("/").partition("/")
        file = self.server.hub.plain(rest) if kind == "plain" else self.server.hub.stored(rest.partition("/")[0])
        if file is None:
            return self._answer(404, {"error": "not found"})
        return self._send_file(file, {})

    def _registry(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        key = (query.get("model_name", [""])[0], query.get("quantization_method", [""])[0])
        url = self.server.hub.registry.get(key)
        if url is None:
            return self._answer(404, {"error": "Manifest does not exist"})
        return self._answer(200, {"manifest_url": url})

    def _refused(self, repo: str) -> bool:
        hub = self.server.hub
        authorization = self.entry.headers.get("authorization")
        if authorization is not None and authorization != f"Bearer {hub.token}":
            self._answer(401, {"error": "Invalid credentials"}, {"X-Error-Message": "Invalid credentials"})
            return True
        if repo in hub.gated and authorization is None:
            message = f"Access to model {repo} is restricted. You must be authenticated to access it."
            self._answer(401, {"error": message}, {"X-Error-Code": "GatedRepo", "X-Error-Message": message})
            return True
        return False

    def _answer(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self._start(status, {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)
            self.entry.sent += len(body)

    def _start(self, status: int, headers: dict[str, str]) -> None:
        self.entry.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_file(self, file: HubFile, headers: dict[str, str]) -> None:
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        ignore_range = hub.take_fault(path, ("ignore_range",)) is not None
        byte_range = None if ignore_range else self._wanted_range(file)
        headers = {"Accept-Ranges": "none" if ignore_range else "bytes", **headers}
        if file.etag is not None:
            headers["ETag"] = file.etag
        start, end = byte_range or (0, file.size)
        if start >= end and byte_range is not None:
            return self._answer(416, {"error": "range"}, {"Content-Range": f"bytes */{file.size}"})
        if byte_range is not None:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
        fault = hub.take_fault(path, ("drop", "stall", "truncate", "shorten", "corrupt"), range(start, end))
        if fault is not None and fault.kind == "shorten":
            end = min(end, start + fault.after)
        self._start(206 if byte_range else 200, {"Content-Length": str(end - start), **headers})
        if self.command != "HEAD":
            self._send_body(file, start, end, fault)

    def _wanted_range(self, file: HubFile) -> tuple[int, int] | None:
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.entry.headers.get("range", ""))
        condition = self.entry.headers.get("if-range")
        if match is None or (condition is not None and condition != file.etag):
            return None
        return int(match[1]), min(int(match[2]) + 1 if match[2] else file.size, file.size)

    def _send_body(self, file: HubFile, start: int, end: int, fault: Fault | None) -> None:
        stop = end
        if fault is not None and fault.kind in ("drop", "stall", "truncate"):
            stop = min(end, start + fault.after)
        flipped = fault.after if fault is not None and fault.kind == "corrupt" else None
        self._send(file, start, stop, flipped)
        if fault is None or fault.kind not in ("drop", "stall", "truncate"):
            return
        self.close_connection = True
        if fault.kind == "stall":
            self.server.hub.closing.wait(fault.seconds)
        if fault.kind == "drop":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def _send(self, file: HubFile, start: int, stop: int, flipped: int | None) -> None:
        rate = self.server.hub.bytes_per_second
        piece = PIECE if rate is None else max(4096, min(PIECE, int(rate / 50)))
        plain = self.server.tls is None and flipped is None and rate is None
        if plain and isinstance(file.content, Path):
            return self._send_quickly(file.content, start, stop)
        began, position = time.monotonic(), start
        while position < stop and not self.server.hub.closing.is_set():
            data = bytearray(file.read(position, min(piece, stop - position)))
            if flipped is not None and position <= flipped < position + len(data):
                data[flipped - position] ^= 0xFF
            self.connection.sendall(data)
            self.entry.sent += len(data)
            position += len(data)
            if rate is not None:
                self.server.hub.closing.wait(max(0.0, began + (position - start) / rate - time.monotonic()))

    def _send_quickly(self, path: Path, start: int, stop: int) -> None:
        with path.open("rb") as file:
            while start < stop:
                file.seek(start)
                sent = self.connection.sendfile(file, start, min(PIECE, stop - start))
                self.entry.sent += sent
                start += sent

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed; see FakeHub.log."""


def _tree_entry(file: HubFile) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "oid": file.sha256[:40], "size": file.size, "path": file.name}
    if file.lfs:
        entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
    return entry


def _sibling(file: HubFile, with_blobs: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"rfilename": file.name}
    if with_blobs:
        entry |= {"size": file.size, "blobId": file.sha256[:40]}
        if file.lfs:
            entry["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": 134}
    return entry
