"""HTTP as downloads need it: redirects followed by hand, tries again, the token for the hub's origin alone."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ..errors import LeapModelDownloadError
from ..system.addresses import masked
from ..system.http import PASSING, backoff, client, ended, failure, host_of, origin, redirected, retry_after
from .hub_settings import HubSettings

if TYPE_CHECKING:
    from concurrent.futures import Future

    import httpx

Value = TypeVar("Value")

RETRIES = 5
RETRIES_UNREACHABLE = 1
"""A host that has never answered is tried so often again: this machine is probably offline."""
FIRST_DELAY = 0.5
LONGEST_DELAY = 20.0
LONGEST_RETRY_AFTER = 300.0
"""Seconds. A server that wants more is not waited for."""


class Retryable(Exception):
    """A failure that may pass: the connection broke, or the server asked for patience (``after`` in seconds).

    ``unreachable``: there was no connection at all, so at first contact there is little hope.
    """

    def __init__(self, reason: str, after: float | None = None, *, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.after = after
        self.unreachable = unreachable


class DownloadStopped(LeapModelDownloadError):
    """The download was stopped on request. What has arrived is kept, and the next one resumes there."""

    def __init__(self) -> None:
        super().__init__("the download was stopped", hint="the same command resumes where it stopped")


class RetryPolicy:
    """Allows ``retries`` failures in a row, each after twice the delay of the one before; progress resets the count.

    ``stop`` ends every wait with DownloadStopped. ``on_wait(reason, seconds)`` is called with each.
    ``hint``: what to do when it gives up.
    """

    def __init__(
        self,
        stop: threading.Event,
        *,
        retries: int = RETRIES,
        first_delay: float = FIRST_DELAY,
        on_wait: Callable[[str, float], object] | None = None,
        hint: str = "what has arrived is kept; run the same command again later",
    ) -> None:
        self.stop = stop
        self.hint = hint
        self.retries = retries
        self.first_delay = first_delay
        self._on_wait = on_wait
        self._failures = 0
        self._ever_progressed = False
        self._guard = threading.Lock()

    def progressed(self) -> None:
        """Resets the count of failures: something has arrived."""
        self._failures = 0
        self._ever_progressed = True

    def failed(self, error: Retryable) -> None:
        """Waits before the next attempt. Raises LeapModelDownloadError after the last one."""
        if self.stop.is_set():  # the error is that of a connection which was cut to stop it
            raise DownloadStopped
        with self._guard:
            self._failures += 1
            failures = self._failures
        after = error.after
        hopeless = error.unreachable and not self._ever_progressed
        allowed = min(self.retries, RETRIES_UNREACHABLE) if hopeless else self.retries
        if failures > allowed or (after is not None and after > LONGEST_RETRY_AFTER):
            instructions = (
                f", and wants us to wait {after:.0f} s" if after is not None and after > LONGEST_RETRY_AFTER else ""
            )
            tries = f" ({failures} attempts)" if failures > 1 else ""
            raise LeapModelDownloadError(f"{error}{instructions}{tries}", hint=self.hint)
        delay = after if after is not None else backoff(failures, self.first_delay, LONGEST_DELAY)
        if self._on_wait is not None:
            self._on_wait(str(error), delay)
        if self.stop.wait(delay):
            raise DownloadStopped

    def run(self, action: Callable[[], Value]) -> Value:
        """Repeats ``action`` until it succeeds or has failed too often."""
        while True:
            if self.stop.is_set():
                raise DownloadStopped
            try:
                value = action()
            except Retryable as error:
                self.failed(error)
            else:
                self.progressed()
                return value


MOST_REDIRECTS = 10
CONNECT_SECONDS = 30.0
LOOPBACK_BUFFER = 256 * 1024
READ_BYTES = 256 * 1024
LARGEST_DOCUMENT = 32 * 1024**2


class WebAnswer(NamedTuple):
    """An answer whose body has not been read yet; ``headers`` are the last hop's, ``first`` the first hop's."""

    response: httpx.Response
    headers: httpx.Headers
    first: httpx.Headers

    @property
    def status(self) -> int:
        return self.response.status_code

    def pieces(self) -> Iterator[bytes]:
        """The body as it is sent. The bytes after the first piece are read from the connection in large pieces,
        past the HTTP library, which would take more time than the hash: a body of known length needs no parsing.

        Public interface: https://www.encode.io/httpcore/extensions/#network_stream
        """
        import httpcore
        import httpx

        length = self.headers.get("content-length", "")
        stream = self.response.extensions.get("network_stream")
        plain = length.isdecimal() and "transfer-encoding" not in self.headers
        body = self.response.iter_raw()
        if not plain or stream is None or self.response.http_version != "HTTP/1.1":
            yield from body
            return
        first = next(body, b"")  # whatever had been read together with the headers, to its last byte
        yield first
        rest = int(length) - len(first)
        timeout = self.response.request.extensions.get("timeout", {}).get("read")
        try:
            while rest > 0:
                piece = stream.read(min(rest, READ_BYTES), timeout)
                if not piece:
                    raise httpx.RemoteProtocolError("the body ended early", request=self.response.request)
                rest -= len(piece)
                yield piece
        except httpcore.TimeoutException as error:
            raise httpx.ReadTimeout(str(error), request=self.response.request) from None
        except httpcore.NetworkError as error:
            raise httpx.ReadError(str(error), request=self.response.request) from None


class Web:
    """One HTTP client for a download, usable from several threads; closed by ``with``. Setting ``stop`` ends every wait
    for an answer with DownloadStopped."""

    def __init__(self, settings: HubSettings, stop: threading.Event | None = None) -> None:
        self.settings = settings
        self._stop = stop or threading.Event()
        self._clients: dict[bool, httpx.Client] = {}
        self._guard = threading.Lock()

    def __enter__(self) -> Web:
        return self

    def __exit__(self, *_: object) -> None:
        for made in self._clients.values():
            made.close()

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Iterator[WebAnswer]:
        """GET, following redirects. Raises Retryable for what may pass, within the block too, and
        LeapModelDownloadError for what will not."""
        import httpx

        first: httpx.Headers | None = None
        try:
            for _ in range(MOST_REDIRECTS):
                asking, sent = self._client_for(url), self._headers_for(url, headers or {})
                request = asking.build_request("GET", url, headers=sent, extensions={"trace": _tame_loopback})
                response = self._sent(asking, request)
                try:
                    if first is None:
                        first = response.headers
                    if not response.has_redirect_location:
                        if response.status_code in PASSING:
                            raise Retryable(_status_line(response), retry_after(response.headers))
                        yield WebAnswer(response, response.headers, first)
                        return
                    url = self._next(url, response.headers["location"])
                finally:
                    response.close()
        except (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError) as error:
            failed = failure(error, host_of(url))
            if failed.lasts:
                raise LeapModelDownloadError(failed.reason, hint=failed.hint) from None
            raise Retryable(failed.reason, unreachable=failed.unreachable) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict) as error:
            raise LeapModelDownloadError(f"cannot ask {host_of(url)}: {error}") from None
        raise LeapModelDownloadError(f"{url} redirects too often")

    def _sent(self, asking: httpx.Client, request: httpx.Request) -> httpx.Response:
        """The head of the answer. When ``stop`` is set, the request's result is dropped."""
        from concurrent.futures import Future

        answer: Future[httpx.Response] = Future()

        def ask() -> None:
            try:
                answer.set_result(asking.send(request, stream=True))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=ask, name="leap-request", daemon=True).start()
        if not ended(answer, self._stop):
            answer.add_done_callback(lambda late: None if late.exception() else late.result().close())
            raise DownloadStopped
        return answer.result()

    def json(self, url: str, what: str, headers: Mapping[str, str] | None = None) -> tuple[Any, Mapping[str, str]]:
        """The JSON document at ``url`` and its headers; ``what`` names it in errors."""
        import json

        body, response_headers = self.document(url, what, headers)
        try:
            return json.loads(body), response_headers
        except (ValueError, RecursionError):
            raise LeapModelDownloadError(f"{host_of(url)} answered for {what} with what is no JSON") from None

    def document(
        self, url: str, what: str, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        """A small document, and the headers of the answer."""
        with self.get(url, headers) as answer:
            if answer.status != 200:
                raise self.refusal(answer, url, what)
            body = bytearray()
            for piece in answer.response.iter_bytes():
                body += piece
                if len(body) > LARGEST_DOCUMENT:
                    raise LeapModelDownloadError(f"{what} at {host_of(url)} is larger than {LARGEST_DOCUMENT} bytes")
            return bytes(body), answer.headers

    def refusal(self, answer: WebAnswer, url: str, what: str) -> LeapModelDownloadError:
        """The error for a status that trying again does not change, with what to do about it."""
        code = answer.first.get("x-error-code", "")
        if answer.status == 404:
            missing = LeapModelDownloadError(f"{host_of(url)} has no {what} (404)", hint=_of_missing(code))
            missing.status = answer.status
            return missing
        if answer.status in (401, 403):
            refused = LeapModelDownloadError(
                f"{host_of(url)} refuses {what} ({answer.status})", hint=self._of_refused(code, url)
            )
            refused.status = answer.status
            return refused
        return LeapModelDownloadError(f"{host_of(url)} answered {_status_line(answer.response)} for {what}")

    def _of_refused(self, code: str, url: str) -> str:
        if not self._is_hub(url):
            return "the server wants credentials, which leap sends to the hub only"
        parts = urlsplit(url).path.removeprefix("/api/models/").strip("/").split("/")
        page = f"{masked(self.settings.endpoint)}/{'/'.join(parts[:2])}"
        if code == "GatedRepo":
            token = "" if self.settings.token else ", then set HF_TOKEN to a token of that account"
            return f"the repository is gated: accept its terms at {page} while logged in{token}"
        if self.settings.token:
            return f"the hub does not accept your token for it; check HF_TOKEN, and at {page} that you have access"
        return f"it is private, gated or misspelt; if {page} exists, set HF_TOKEN to a token that may read it"

    def _client_for(self, url: str) -> httpx.Client:
        """One client with certificates, which take a while to load, and one without for plain HTTP."""
        secure = url.startswith("https://")
        with self._guard:
            if secure not in self._clients:
                self._clients[secure] = self._new_client(secure)
            return self._clients[secure]

    def _new_client(self, secure: bool) -> httpx.Client:
        import httpx

        stall = self.settings.stall_seconds
        timeout = httpx.Timeout(stall, connect=min(CONNECT_SECONDS, stall * 2))
        try:
            return client(httpx.Client, timeout=timeout, secure=secure, headers={"Accept-Encoding": "identity"})
        except OSError as error:
            raise LeapModelDownloadError(f"cannot set up HTTP: {error}") from None

    def _headers_for(self, url: str, headers: Mapping[str, str]) -> dict[str, str]:
        token = self.settings.token
        return {**headers, **({"Authorization": f"Bearer {token}"} if token and self._is_hub(url) else {})}

    def _is_hub(self, url: str) -> bool:
        return origin(self.settings.endpoint) == origin(url)

    def _next(self, url: str, location: str) -> str:
        target = redirected(url, location)
        scheme = urlsplit(target).scheme
        if scheme not in ("http", "https") or (scheme == "http" and url.startswith("https://")):
            raise LeapModelDownloadError(f"{url} redirects to {target.split('?')[0]}, which is not safe to follow")
        return target


def _tame_loopback(event: str, details: Mapping[str, Any]) -> None:
    """Bound what the kernel buffers of a connection within this machine: it would be megabytes, lost at a kill."""
    if event != "connection.connect_tcp.complete":
        return
    connection = details["return_value"].get_extra_info("socket")
    with suppress(OSError, ValueError, TypeError, IndexError, AttributeError):
        if ipaddress.ip_address(connection.getpeername()[0]).is_loopback:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LOOPBACK_BUFFER)


def _status_line(response: httpx.Response) -> str:
    return f"{response.status_code} {response.reason_phrase}".strip()


def _of_missing(code: str) -> str | None:
    return {
        "RepoNotFound": "check the repository's name; a private one needs HF_TOKEN",
        "RevisionNotFound": "check the revision",
        "EntryNotFound": "check the file's name",
    }.get(code)
