"""HTTP with other machines, as everything that asks them does it: the user's certificates and proxies, bounds, the
pause that a server asks for, and what failed as one line.

Media of an address have a bound on the whole exchange, and messages about jobs one to the head of the answer (``ended``
of a ``Loop``). Hubs and endpoints have one on connecting and one on silence, the timeout of ``client``: a file or a
stream may take hours.

httpx is imported when something is asked. The model server of this machine is asked without it
(``protocols.host.host_http``).
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    import asyncio
    import ssl
    from concurrent.futures import Future

    import httpx

Client = TypeVar("Client", "httpx.Client", "httpx.AsyncClient")
Value = TypeVar("Value")

CERTIFICATE_FILES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which asking again may help."""
LOOK_SECONDS = 0.1
"""A wait for an answer looks this often whether it is to be given up."""
END_SECONDS = 5.0
NO_TARGET = "Invalid URL in location header: "
"""The words of httpx for a redirect to what is no address."""


def client(kind: type[Client], *, timeout: httpx.Timeout | float, secure: bool = True, **options: Any) -> Client:
    """A client that follows no redirect. ``secure``: certificates are needed, which take a while to load. Raises
    OSError for certificates and proxies of the user's that cannot be used."""
    import httpx

    from . import __version__

    headers = {"User-Agent": f"leap/{__version__}", **options.pop("headers", {})}
    try:
        return kind(timeout=timeout, verify=secure and _trusted(), headers=headers, follow_redirects=False, **options)
    except ImportError as error:
        raise OSError(
            f"the proxy that $ALL_PROXY or $HTTPS_PROXY names is not spoken to: {str(error).partition('. ')[0]} "
            "(pip install 'httpx[socks]', or unset the variable)"
        ) from None
    except (ValueError, httpx.InvalidURL) as error:
        raise OSError(f"the address of a proxy cannot be used: {error}") from None


def _trusted() -> ssl.SSLContext | bool:
    """The certificates of the first of CERTIFICATE_FILES that is set, instead of the system's."""
    variable = next((name for name in CERTIFICATE_FILES if os.environ.get(name)), None)
    if variable is None:
        return True
    import ssl

    file = os.environ[variable]
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        reason = "it has no certificates (PEM)" if isinstance(error, ssl.SSLError) else error.strerror
        raise OSError(f"cannot read the certificates of {variable}={file}: {reason}") from None


class Failure(NamedTuple):
    """Why there is no answer. ``unreachable``: not even a connection; ``lasts``: trying again does not help."""

    reason: str
    hint: str | None = None
    unreachable: bool = False
    lasts: bool = False

    def __str__(self) -> str:
        return f"{self.reason}; {self.hint}" if self.hint else self.reason


def failure(error: Exception, host: str) -> Failure:
    """What httpx, or the look-up of a name, raised for an exchange with ``host``."""
    import socket

    kind, said = type(error).__name__, " ".join(str(error).split())
    because = f" ({said})" if said else ""
    if "CERTIFICATE_VERIFY_FAILED" in said:
        hint = "if it is your company's, name its file in SSL_CERT_FILE"
        return Failure(f"the certificate of {host} is not trusted{because}", hint, lasts=True)
    if kind == "RemoteProtocolError" and said.startswith(NO_TARGET):
        return Failure(f"{host} redirects to what is no address ({said.removeprefix(NO_TARGET)})", lasts=True)
    if isinstance(error, socket.gaierror):
        return Failure(f"the host {host} is unknown", unreachable=True)
    words = {
        "ConnectTimeout": f"{host} did not take the connection within {_limit(error, 'connect')} s",
        "ConnectError": f"cannot connect to {host}{because}",
        "ProxyError": f"the proxy refused the way to {host}{because}",
        "ReadTimeout": f"{host} sent nothing for {_limit(error, 'read')} s",
        "ReadError": f"the connection to {host} broke",
        "RemoteProtocolError": f"{host} closed the connection early",
        **dict.fromkeys(("InvalidURL", "UnsupportedProtocol"), f"the address cannot be used{because}"),
    }
    default = f"the connection to {host} failed ({kind})" if "httpx" in type(error).__module__ else said or kind
    return Failure(words.get(kind, default), unreachable=kind in ("ConnectError", "ConnectTimeout", "ProxyError"))


def _limit(error: Any, phase: str) -> str:
    with suppress(RuntimeError, AttributeError, KeyError):  # not raised for a request
        return f"{error.request.extensions['timeout'][phase]:g}"
    return "some"


def host_of(url: str) -> str:
    """The server of a URL, without the password that may be before it."""
    return urlsplit(url).netloc.rpartition("@")[2]


def origin(url: str) -> tuple[str, str | None, int | None]:
    """What a token may be sent to, and nothing beyond it."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def redirected(url: str, location: str) -> str:
    """Where ``url`` redirects to. Raises httpx.RemoteProtocolError, as httpx does, for what is no address."""
    try:
        origin(target := urljoin(url, location))
    except ValueError as error:
        import httpx

        raise httpx.RemoteProtocolError(f"{NO_TARGET}{error}") from None
    return target


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to be left alone (RFC 9110, 10.2.3; ``retry-after-ms`` of OpenAI): a number or a
    date. None where it says none, or what is no length of time."""
    from email.utils import parsedate_to_datetime

    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) * unit
            if math.isfinite(seconds):
                return max(0.0, seconds)
    with suppress(ValueError, TypeError, OverflowError, IndexError):
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    return None


def backoff(failures: int, first: float, longest: float) -> float:
    """The wait after so many failures in a row, each about twice the one before."""
    return min(first * 2.0 ** (failures - 1), longest) * random.uniform(0.75, 1.25)


def ended(answer: Future[Any], stop: threading.Event | None, seconds: float = math.inf) -> bool:
    """Wait for an answer; False when ``stop`` was set or the time was over before it came."""
    from concurrent.futures import wait

    end = time.monotonic() + seconds
    while not wait([answer], LOOK_SECONDS).done:
        if (stop is not None and stop.is_set()) or time.monotonic() > end:
            return False
    return True


class Loop:
    """An event loop in a thread of its own, so that any exchange can be given up at any moment, also while a name is
    looked up. ``submit`` may be called from any thread; the thread starts with the first one. ``at_end`` runs in the
    loop before it ends."""

    def __init__(self, at_end: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self._at_end = at_end
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, work: Coroutine[Any, Any, Value]) -> Future[Value]:
        """Run a coroutine in the loop; cancelling the future cancels it."""
        import asyncio

        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="leap-requests", daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the loop and every connection. Requests that run are cancelled."""
        import asyncio

        with self._guard:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        end = asyncio.run_coroutine_threadsafe(self._end(), loop)
        if thread is threading.current_thread():  # collected there
            end.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
            return
        with suppress(Exception):
            end.result(END_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(END_SECONDS)
        if not thread.is_alive():
            loop.close()

    async def _end(self) -> None:
        import asyncio

        await self._cancel_others()
        if self._at_end is not None:
            await self._at_end()
        await asyncio.get_running_loop().shutdown_asyncgens()
        await asyncio.sleep(0)  # generators that were dropped get their tasks in the next turn
        await self._cancel_others()

    async def _cancel_others(self) -> None:
        import asyncio

        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
