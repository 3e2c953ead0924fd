"""HTTP with an endpoint: one event loop in a thread of its own, so that any request can be given up at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Protocol

import httpx

from ...conversation.responses import MessageResponse
from ...errors import LeapEndpointError, LeapError
from ...models.aliases_and_endpoints import Endpoint
from ...schemas.json_values import JsonObject
from ...system.http import PASSING, Loop
from .errors import EndpointErrors, Refusal
from .retries import HoldBack, Patience, Retries
from .transport import RefusedError, Transport


class Reads(Protocol):
    """Takes an answer in pieces, or whole."""

    @property
    def has_begun(self) -> bool: ...

    @property
    def has_ended(self) -> bool: ...

    def feed(self, value: object) -> Iterator[MessageResponse]: ...


class Connection:
    """Requests to one endpoint. ``submit`` may be called from any thread; coroutines run in the loop's. ``what`` the
    endpoint is asked for, in errors."""

    def __init__(self, endpoint: Endpoint, key: str | None, patience: Patience, what: str = "chats") -> None:
        self.endpoint, self.patience = endpoint, patience
        self.words = EndpointErrors(endpoint, key, what)
        self._transport = Transport(endpoint, key, patience, self.words)
        self._loop = Loop(at_end=self._transport.close)
        self._hold_back = HoldBack()
        self._knows_schemas: bool | None = None
        """Whether it takes schemas as OpenAI writes them, or as llama-cpp-python's server does; None before it took
        one."""
        self.way = 0
        """Which of the addresses that answer a request the endpoint has."""
        self._substitutes: dict[str, str | None] = {}
        """Fields that this endpoint refuses, and those that say the same, if any."""

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine in the loop; cancelling the future cancels it."""
        return self._loop.submit(work)

    def close(self) -> None:
        """End every connection. Requests that run are cancelled."""
        self._loop.close()

    def ask(self, method: str, url: str, body: JsonObject | None = None, seconds: float = 30.0) -> Any:
        """A short answer as JSON. Raises LeapEndpointError, without asking again."""
        return self.submit(self._transport.ask(method, url, body)).result(seconds)

    async def exchange(
        self,
        path: str,
        body: JsonObject,
        reply: Reads,
        put: Callable[[MessageResponse], object],
        on_again: Callable[[str], object],
    ) -> None:
        """Send a request, and hand over the responses of its answer, without its end. A failure that may pass is
        retried while nothing of the answer has come; ``on_again`` gets its reason. Raises LeapError."""
        body = {**body, **self.endpoint.body}
        retries = Retries(self.patience)
        while True:
            try:
                await self._adapted(path, body, reply, put, retries)
                return
            except RefusedError as refused:
                refusal = refused.refusal
                if retries.of_schema is not None and refusal.status in (400, 422):
                    raise retries.of_schema from None  # the schema itself is at fault
                error: LeapError = self.words.of_refusal(refusal, retries.tries)
                if refusal.status == 429 and not refusal.is_spent:
                    wait = retries.held_back(refusal, error)
                    on_again(refusal.line)
                    self._hold_back.extend(wait)
                    continue
                after = refusal.after if refusal.status in PASSING else None
                reason = refusal.line
            except httpx.HTTPError as failure:
                error = self.words.of_exception(failure, retries.tries)
                after, reason = None, type(failure).__name__
            except LeapEndpointError as failure:
                error, after, reason = failure, None, "broken off"
            wait = retries.wait(error, after, has_begun=reply.has_begun)
            on_again(reason)
            await asyncio.sleep(wait)

    async def _adapted(
        self, path: str, body: JsonObject, reply: Reads, put: Callable[[MessageResponse], object], retries: Retries
    ) -> None:
        """Send a request, and again with other fields as long as the endpoint refuses some that have a substitute.
        Raises what the transport raises."""

        def take(value: object) -> None:
            for response in reply.feed(value):
                put(response)

        while True:
            await self._hold_back.over()
            retries.tries += 1
            self._apply_substitutes(body)
            try:
                await self._transport.post(self.endpoint.url + path, body, take)
                break
            except RefusedError as refused:
                refusal, had_schema = refused.refusal, _has_schema(body)
                if not self._substitute(refusal, body):
                    raise
                if had_schema and not _has_schema(body):
                    retries.of_schema = self.words.of_refusal(refusal, retries.tries)
        if not reply.has_ended:
            raise self.words.of_end()
        if self._knows_schemas is None and (retries.of_schema or _has_schema(body)):
            self._knows_schemas = retries.of_schema is None

    def _substitute(self, refusal: Refusal, body: JsonObject) -> bool:
        """Say in another way what this endpoint does not know; whether there was anything to change."""
        if refusal.status not in (400, 422, 500):
            return False
        said = f"{refusal.param} {refusal.message}"
        if "response_format" in said and _has_schema(body) and not self._knows_schemas:
            _as_object(body)
            return True
        if refusal.status == 500:
            return False
        elif "stream_options" in body and "stream_options" in said:
            self._substitutes["stream_options"] = None
        elif "max_tokens" in body and "max_completion_tokens" in said:
            self._substitutes["max_tokens"] = "max_completion_tokens"
        else:
            return False
        return self._apply_substitutes(body)

    def _apply_substitutes(self, body: JsonObject) -> bool:
        changed = self._knows_schemas is False and _has_schema(body)
        if changed:
            _as_object(body)
        for name, other in self._substitutes.items():
            if name in body:
                value, changed = body.pop(name), True
                if other is not None:
                    body[other] = value
        return changed


def _has_schema(body: JsonObject) -> bool:
    return "json_schema" in body.get("response_format", {})


def _as_object(body: JsonObject) -> None:
    body["response_format"] = {"type": "json_object", "schema": body["response_format"]["json_schema"]["schema"]}
