"""What a server measures and logs: counts and times, an id and a line for every request, never what was said."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import GenerationStats
from ..schemas.json_values import JsonObject
from .models.loaded_models import LoadedModels

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
MOST_RECENT = 256
NEXT_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

JobCounts = Callable[[], Mapping[str, int]]
"""How many background jobs are in each state."""


class Metrics:
    """Counters and histograms of one server; the state of its models and jobs is looked up when it is asked for."""

    def __init__(self, models: LoadedModels, job_counts: JobCounts | None = None) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter("leap_requests", "Requests by path and status", ["path", "status"], registry=registry)
        self._tokens = Counter(
            "leap_tokens", "Tokens: of prompts computed and restored, of answers", ["model", "kind"], registry=registry
        )
        self._answers = Counter(
            "leap_answers", "Answers by the reason of their end", ["model", "end"], registry=registry
        )
        self._cache_hits = Counter(
            "leap_prompt_cache_hits", "Answers whose prompt was restored in part", ["model"], registry=registry
        )
        self._first = Histogram(
            "leap_time_to_first_token_seconds",
            "From the request to the first piece of its answer",
            ["model"],
            buckets=FIRST_TOKEN_SECONDS,
            registry=registry,
        )
        self._next = Histogram(
            "leap_time_between_tokens_seconds",
            "Between two pieces of an answer",
            ["model"],
            buckets=NEXT_TOKEN_SECONDS,
            registry=registry,
        )
        registry.register(_Gauges(models, job_counts))
        self.recent: deque[JsonObject] = deque(maxlen=MOST_RECENT)
        """How the last requests went, for ``leap why``; in memory alone."""

    def request(self, path: str, status: int) -> None:
        """A request was answered; ``path`` is its route's."""
        self._requests.labels(path, str(status)).inc()

    def first_token(self, model: str, seconds: float) -> None:
        """The first piece of an answer came."""
        self._first.labels(model).observe(seconds)

    def next_token(self, model: str, seconds: float) -> None:
        """A further piece came."""
        self._next.labels(model).observe(seconds)

    def answered(self, model: str, stats: GenerationStats, reason: str) -> None:
        """An answer is whole."""
        self._answers.labels(model, reason).inc()
        for kind, count in (
            ("prompt", stats.prompt_tokens),
            ("cached", stats.cached_prompt_tokens),
            ("completion", stats.completion_tokens),
        ):
            self._tokens.labels(model, kind).inc(count)
        if stats.cached_prompt_tokens:
            self._cache_hits.labels(model).inc()

    def failed(self, model: str, error: str) -> None:
        """A generation failed with an error of this class."""
        self._answers.labels(model, error).inc()

    def text(self) -> bytes:
        """All of it."""
        return generate_latest(self._registry)


class _Gauges:
    """The gauges, collected when they are asked for."""

    def __init__(self, models: LoadedModels, job_counts: JobCounts | None) -> None:
        self._models, self._job_counts = models, job_counts

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        slots = GaugeMetricFamily("leap_slots", "Answers that are made at once", labels=["model"])
        busy = GaugeMetricFamily("leap_slots_in_use", "Answers that are being made", labels=["model"])
        waiting = GaugeMetricFamily("leap_queue", "Requests that wait for a slot", labels=["model"])
        for model in self._models:
            slots.add_metric([model.name], model.options.slots)
            busy.add_metric([model.name], min(model.active, model.options.slots))
            waiting.add_metric([model.name], max(0, model.active - model.options.slots))
        yield from (slots, busy, waiting, *self._of_engines())
        if self._job_counts is not None:
            jobs = GaugeMetricFamily("leap_jobs", "Background jobs by state", labels=["state"])
            for state, count in self._job_counts().items():
                jobs.add_metric([state], count)
            yield jobs

    def _of_engines(self) -> Iterator[Metric]:
        levels = GaugeMetricFamily("leap_queue_by_level", "Requests that wait for a slot", labels=["model", "level"])
        reading = GaugeMetricFamily("leap_prompts_reading", "Prompts that are being computed", labels=["model"])
        unread = GaugeMetricFamily("leap_prompt_tokens_unread", "Tokens of them that are left", labels=["model"])
        preempted = CounterMetricFamily("leap_preemptions", "Slots given to a higher level", labels=["model"])
        for model in self._models:
            if (activity := model.activity) is not None:
                for level, count in activity.waiting_by_level.items():
                    levels.add_metric([model.name, level], count)
                reading.add_metric([model.name], len(activity.reading))
                unread.add_metric([model.name], sum(each.total - each.processed for each in activity.reading))
                preempted.add_metric([model.name], activity.preemptions)
        yield from (levels, reading, unread, preempted)


access_log = logging.getLogger("leap.access")

answers_of_request: ContextVar[list[str] | None] = ContextVar("answers_of_request", default=None)
"""What is counted of each answer to the request that is being served."""
id_of_request: ContextVar[str] = ContextVar("id_of_request", default="")
REQUEST_ID = b"x-request-id"
LONGEST_ID = 128
LARGE = 8 * 1024 * 1024
"""Bytes of a request from which on its memory is given back at once, not when Python gets round to it."""
FREE_SECONDS = 0.5
"""From the end of a large request until what refused it is not referred to any more."""


def give_memory_back() -> None:
    """Free what only refers to itself, as an error does to the request in its traceback, and let the system have it."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc keeps what is free
        ctypes.CDLL(None).malloc_trim(0)


class RequestLog:
    """ASGI middleware around all others. A client may name its request by the header X-Request-Id."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        named = next((value for name, value in scope["headers"] if name == REQUEST_ID), b"")
        usable = 0 < len(named) <= LONGEST_ID and all(33 <= byte <= 126 for byte in named)
        id = named if usable else f"req_{secrets.token_hex(12)}".encode()
        start, status, size = time.monotonic(), 0, 0
        answers: list[str] = []
        answers_of_request.set(answers)
        id_of_request.set(id.decode("ascii"))

        async def send_named(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (REQUEST_ID, id)]}
            else:
                size += len(message.get("body", b""))
            await send(message)

        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        try:
            await self._app(scope, receive_counted, send_named)
        finally:
            if received > LARGE:
                asyncio.get_running_loop().call_later(FREE_SECONDS, give_memory_back)
            route = scope.get("route")
            path = getattr(route, "path", "other")  # a path that a client makes up is no label
            self._metrics.request(path, status)
            seconds = time.monotonic() - start
            line = f"{id.decode('ascii')} {scope['method']} {path} {status}, {size} bytes, {seconds:.3f} s"
            access_log.info("%s", "; ".join([line, *answers]))
