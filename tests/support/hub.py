"""A Hugging Face hub on 127.0.0.1 that misbehaves where a test wants it. Real HTTP, no network.

with FakeHub() as hub:
        hub.add_file("LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_0.gguf", path_or_bytes)
        hub.fault("drop", after=1_000_000)
        subprocess.run(["leap", "download", "LFM2-350M"], env={**os.environ, **hub.environment})
        assert hub.bytes_served("LFM2-350M-Q4_0.gguf") < 1.05 * size

It serves searches, the tree and revision API, ``resolve`` with a redirect to a second host (another port: the storage),
Range, If-Range, ETag, the headers of LFS files, gated repositories, plain files by URL, and the LEAP registry's end
point.
Every request is logged with its headers and the bytes that were sent in answer.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from leap_core.system.dataclass import dataclass
from leap_core.system.files import hash_file

API, RESOLVE, FILES = "/api/", "/resolve/", "/storage/"
"""What to give a fault as ``where`` to hit the API, the hub's answers to downloads, or the storage's."""
FAULTS = ("drop", "stall", "truncate", "shorten", "corrupt", "status", "ignore_range")


@dataclass
class Fault:
    """One way to misbehave, ``times`` times, at requests whose path contains ``where``.

    A fault of the body applies only to answers that are longer than ``after``, or contain the byte that is corrupted.

    drop: reset the connection after ``after`` bytes of the body; stall: send no more for ``seconds``; truncate: end the
    body early but orderly; shorten: announce and send only ``after`` bytes; corrupt: flip the bits of the file's byte
    ``after``; status: answer ``status`` (with ``retry_after``); ignore_range: send the whole file.
    """

    kind: str
    where: str = ""
    times: int = 1
    after: int = 0
    seconds: float = 3600.0
    status: int = 500
    retry_after: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class LoggedRequest:
    """A request as it was answered. ``headers`` have lower-case names; ``sent`` counts bytes of the body."""

    host: str
    method: str
    path: str
    headers: dict[str, str]
    status: int = 0
    sent: int = 0


@dataclass(frozen=True)
class ServedFile:
    """A file that is served; ``etag`` None sends no validator."""

    name: str
    content: bytes | Path
    size: int
    sha256: str
    lfs: bool
    etag: str | None

    def read(self, start: int, length: int) -> bytes:
        """A stretch of its bytes."""
        if isinstance(self.content, bytes):
            return self.content[start : start + length]
        with self.content.open("rb") as file:
            file.seek(start)
            return file.read(length)


class HubContent(ABC):
    """The content of a ``FakeHub``. Any thread may call."""

    def __init__(self, token: str, bytes_per_second: float | None) -> None:
        self.token = token
        self.bytes_per_second = bytes_per_second
        self.gated: set[str] = set()
        self.faults: list[Fault] = []
        self.log: list[LoggedRequest] = []
        self.registry: dict[tuple[str, str], str] = {}
        """The LEAP registry: (model, quantization) -> the URL of a manifest."""
        self.described: dict[str, dict[str, Any]] = {}
        """What a search says of a repository: repository -> architecture, total and context_length of its GGUF."""
        self._commits: dict[str, dict[str, dict[str, ServedFile]]] = {}
        self._heads: dict[str, str] = {}
        self._plain: dict[str, ServedFile] = {}
        self._guard = threading.Lock()
        self.closing = threading.Event()

    @property
    @abstractmethod
    def storage_url(self) -> str:
        """The second host, to which downloads are redirected, and which serves ``add_plain``'s files."""

    def add_file(self, repo: str, path: str, content: bytes | Path, *, lfs: bool | None = None) -> str:
        """Commit a file to a repository, replacing one of the same path; its SHA-256. Files of more than 1 kB are LFS
        files unless a test says otherwise."""
        file = _file_of(path, content, lfs)
        with self._guard:
            files = dict(self._commits.get(repo, {}).get(self._heads.get(repo, ""), {}))
            files[path] = file
            state = "".join(f"{name} {entry.sha256}\n" for name, entry in sorted(files.items()))
            commit = hashlib.sha1(state.encode()).hexdigest()
            self._commits.setdefault(repo, {})[commit] = files
            self._heads[repo] = commit
        return file.sha256

    def add_plain(self, path: str, content: bytes | Path, *, etag: str | None = "") -> str:
        """Serve a file by URL on the second host, and return that URL. ``etag`` None sends no validator at all."""
        file = _file_of(path, content, False)
        tag = f'"{file.sha256[:16]}"' if etag == "" else etag
        with self._guard:
            self._plain[path.lstrip("/")] = ServedFile(file.name, file.content, file.size, file.sha256, False, tag)
        return f"{self.storage_url}/plain/{quote(path.lstrip('/'))}"

    def fault(self, kind: str, where: str = FILES, **details: Any) -> Fault:
        """Add a Fault; it applies to the storage's answers unless ``where`` says otherwise."""
        if kind not in FAULTS:
            raise ValueError(f"{kind!r} is not one of {', '.join(FAULTS)}")
        fault = Fault(kind, where, **details)
        self.faults.append(fault)
        return fault

    def requests(self, where: str = "") -> list[LoggedRequest]:
        """The log's requests whose path contains ``where``."""
        with self._guard:
            return [request for request in self.log if where in request.path]

    def bytes_served(self, where: str = FILES) -> int:
        """Bytes of all bodies that were sent for paths that contain ``where``."""
        return sum(request.sent for request in self.requests(where))

    def take_fault(self, path: str, kinds: tuple[str, ...], body: range | None = None) -> Fault | None:
        """The first fault of these kinds that applies to the path, and to a body of these bytes, used up by one."""
        with self._guard:
            for fault in self.faults:
                fits = body is None or fault.after in (body if fault.kind == "corrupt" else range(len(body)))
                if fault.kind in kinds and fault.times > 0 and fault.where in path and fits:
                    fault.times -= 1
                    return fault
        return None

    def write_down(self, host: str, method: str, path: str, headers: dict[str, str]) -> LoggedRequest:
        """Add a request to the log."""
        request = LoggedRequest(host, method, path, headers)
        with self._guard:
            self.log.append(request)
        return request

    def repositories(self, words: str) -> list[str]:
        """Those with a GGUF file and all these words in their names."""
        with self._guard:
            return [
                repo
                for repo, commit in self._heads.items()
                if all(word in repo.lower() for word in words.lower().split())
                and any(name.endswith(".gguf") for name in self._commits[repo][commit])
            ]

    def files_of(self, repo: str, revision: str) -> tuple[str, dict[str, ServedFile]] | None:
        """A commit and its files; the revision is main, or a commit's hash."""
        with self._guard:
            commits = self._commits.get(repo)
            commit = self._heads.get(repo, "") if revision == "main" else revision
            return (commit, commits[commit]) if commits and commit in commits else None

    def stored(self, sha256: str) -> ServedFile | None:
        """A file of any commit by its hash."""
        with self._guard:
            every = (
                file for commits in self._commits.values() for files in commits.values() for file in files.values()
            )
            return next((file for file in every if file.sha256 == sha256), None)

    def plain(self, path: str) -> ServedFile | None:
        """A file that ``add_plain`` put there."""
        with self._guard:
            return self._plain.get(path)


def _file_of(path: str, content: bytes | Path, lfs: bool | None) -> ServedFile:
    if isinstance(content, bytes):
        size, sha256 = len(content), hashlib.sha256(content).hexdigest()
    else:
        size, sha256 = content.stat().st_size, hash_file(content)
    is_lfs = size > 1024 if lfs is None else lfs
    return ServedFile(path, content, size, sha256, is_lfs, f'"{sha256 if is_lfs else sha256[:40]}"')


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
        super().__init__(("127.0.0.1", 0), _HubHandler)
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


class _HubHandler(BaseHTTPRequestHandler):
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
            self.entry.sent += len(body)  # before: who has it all may ask at once
            self.wfile.write(body)

    def _start(self, status: int, headers: dict[str, str]) -> None:
        self.entry.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_file(self, file: ServedFile, headers: dict[str, str]) -> None:
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

    def _wanted_range(self, file: ServedFile) -> tuple[int, int] | None:
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.entry.headers.get("range", ""))
        condition = self.entry.headers.get("if-range")
        if match is None or (condition is not None and condition != file.etag):
            return None
        return int(match[1]), min(int(match[2]) + 1 if match[2] else file.size, file.size)

    def _send_body(self, file: ServedFile, start: int, end: int, fault: Fault | None) -> None:
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

    def _send(self, file: ServedFile, start: int, stop: int, flipped: int | None) -> None:
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
            self.entry.sent += len(data)
            self.connection.sendall(data)
            position += len(data)
            if rate is not None:
                self.server.hub.closing.wait(max(0.0, began + (position - start) / rate - time.monotonic()))

    def _send_quickly(self, path: Path, start: int, stop: int) -> None:
        with path.open("rb") as file:
            while start < stop:
                file.seek(start)
                sent, count = 0, min(PIECE, stop - start)
                self.entry.sent += count  # before: who has it all may ask at once
                try:
                    sent = self.connection.sendfile(file, start, count)
                finally:
                    self.entry.sent += sent - count
                start += sent

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed; see FakeHub.log."""


def _tree_entry(file: ServedFile) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "oid": file.sha256[:40], "size": file.size, "path": file.name}
    if file.lfs:
        entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
    return entry


def _sibling(file: ServedFile, with_blobs: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"rfilename": file.name}
    if with_blobs:
        entry |= {"size": file.size, "blobId": file.sha256[:40]}
        if file.lfs:
            entry["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": 134}
    return entry


class FakeHub(HubContent):
    """See the module. ``token``: what gated repositories ask for. ``bytes_per_second``: the limit of one connection.
    With ``certificate`` and ``key`` (PEM files) it speaks HTTPS."""

    def __init__(
        self,
        *,
        token: str = "hf_secret",
        bytes_per_second: float | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        super().__init__(token, bytes_per_second)
        self._servers = {name: HubServer(self, name, certificate, key) for name in (HUB, STORAGE)}

    @property
    def url(self) -> str:
        """The hub's own address: HF_ENDPOINT."""
        return self._servers[HUB].address

    @property
    def storage_url(self) -> str:
        return self._servers[STORAGE].address

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead leap to this hub, and not to a proxy."""
        return {"HF_ENDPOINT": self.url, "LEAP_REGISTRY": self.url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def __enter__(self) -> FakeHub:
        for server in self._servers.values():
            server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving; open connections are cut."""
        self.closing.set()
        for server in self._servers.values():
            server.stop()
