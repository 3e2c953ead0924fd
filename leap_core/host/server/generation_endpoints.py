"""The endpoints that generate: a request is read, begun on its model, and its responses sent on as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive

from ...anthropic.replies import MessagesReply
from ...anthropic.requests import read_messages
from ...errors import LeapError, LeapGenerationError
from ...media.fetching import UrlAccess
from ...openai.audio import SpokenAnswers
from ...openai.replies import OpenAIReply
from ...openai.requests import GenerationRequest, options_of_choice, read_chat, read_completion
from ...openai.responses_replies import ResponsesReply
from ...openai.responses_requests import previous_of, read_responses
from ...options.adapters import refuse_adapters
from ...responses import Complete
from ...runner.contract import Generation, ModelRunner
from .answers import GENERATION_HEADER, Answer, EventStream, ReplyWriter, stop_when_gone
from .event_loop_bridge import GenerationBridge
from .http_errors import unacceptable
from .kept_responses import KeptResponses
from .loaded_models import LoadedModel, LoadedModels
from .metrics import Metrics
from .request_bodies import Read, read_body
from .several_answers import SeveralAnswers


class Stoppable(Protocol):
    """What answers a request: one generation or several."""

    def stop(self) -> None:
        """End within one token."""
        ...


class GenerationEndpoints:
    """Chat, completions, responses and messages. ``running`` are the generations by the id in their header; ``urls``:
    what the URLs of pictures may reach; ``own_clients``: they may name files of this machine as adapters."""

    def __init__(
        self,
        models: LoadedModels,
        metrics: Metrics | None = None,
        kept: KeptResponses | None = None,
        *,
        urls: UrlAccess = UrlAccess.DATA,
        own_clients: bool = False,
    ) -> None:
        self._models = models
        self._urls = urls
        self._own_clients = own_clients
        self._spoken = SpokenAnswers()
        self._kept = kept or KeptResponses()
        self.metrics = metrics or Metrics(models)
        self.running: MutableMapping[str, Stoppable] = {}

    async def chat(self, request: Request) -> Response:
        """A conversation's next message."""
        generation_request = await self._read(
            request, lambda body: read_chat(self._spoken.filled_in(body), urls=self._urls)
        )
        return await self._answer(
            request, generation_request, lambda model: OpenAIReply(generation_request, model, self._spoken.keep)
        )

    async def completion(self, request: Request) -> Response:
        """The continuation of a text."""
        generation_request = await read_body(request, read_completion)
        return await self._answer(request, generation_request, lambda model: OpenAIReply(generation_request, model))

    async def responses(self, request: Request) -> Response:
        """The next response of OpenAI's newer protocol."""

        def read(body: Any) -> Any:
            previous = previous_of(body)
            history = [] if previous is None else self._kept.history(previous)
            return read_responses(body, history, urls=self._urls), history

        generation_request, history = await read_body(request, read, slow=True)  # a stored one lies on the disk

        def write(model: str) -> ReplyWriter:
            def keep(id: str, message: dict[str, Any]) -> str | None:
                return self._kept.keep(
                    id,
                    [*history, *generation_request.own, message],
                    durable=generation_request.keep is True,
                    model=model,
                )

            return ResponsesReply(generation_request, model, keep)

        return await self._answer(request, generation_request.chat, write)

    async def messages(self, request: Request) -> Response:
        """The next message of Anthropic's protocol."""
        generation_request = await self._read(request, lambda body: read_messages(body, urls=self._urls))
        return await self._answer(request, generation_request, lambda model: MessagesReply(generation_request, model))

    async def count_tokens(self, request: Request) -> Response:
        """How many tokens the prompt of a request to ``messages`` has."""
        generation_request = await self._read(request, lambda body: read_messages(body, counts=True, urls=self._urls))
        with self._models.to_answer(generation_request.model).in_use(answers=False) as runner:
            count = await asyncio.to_thread(
                runner.get_prompt_tokens_size, generation_request.messages, True, generation_request.functions
            )
        return JSONResponse({"input_tokens": count})

    async def _read(self, request: Request, read: Callable[[Any], Read]) -> Read:
        return await read_body(request, read, slow=self._urls > UrlAccess.DATA)

    async def _answer(
        self, request: Request, generation_request: GenerationRequest, write: Callable[[str], ReplyWriter]
    ) -> Response:
        model = self._models.to_answer(generation_request.model)
        generation_request = self._with_adapters(generation_request, model)
        with ExitStack() as using:
            runner = using.enter_context(model.in_use())
            if generation_request.audio is not None:
                check_voice(runner)
            bridge = GenerationBridge(_beginning(runner, generation_request))
            if not await start_bridge(bridge, request.receive):
                return Response()  # the client left
            reply = write(generation_request.model or model.name)
            self.running[reply.id] = bridge
            using.callback(self.running.pop, reply.id, None)
            answer = Answer(generation_request, reply, bridge, model, self.metrics)
            if generation_request.choices > 1:
                for _ in range(1, generation_request.choices):
                    using.enter_context(model.in_use())
                assert isinstance(reply, OpenAIReply)
                begin_next = self._next(request, answer, model, runner)
                self.running[reply.id] = several = SeveralAnswers(reply, answer, begin_next, using.pop_all())
                return several
            if generation_request.stream:
                return EventStream(answer, using.pop_all())
            complete = await _whole(request, answer)
            return JSONResponse(await answer.whole(complete), headers={GENERATION_HEADER: reply.id})

    def _with_adapters(self, generation_request: GenerationRequest, model: LoadedModel) -> GenerationRequest:
        """The request with the adapters that it names behind the model, or in its options."""
        options, adapters = generation_request.options, model.named_adapters(generation_request.model)
        if adapters is not None:
            return replace(generation_request, options=replace(options, adapters=adapters))
        if not self._own_clients:
            refuse_adapters(options.adapters, model.name)
        return generation_request

    def _next(
        self, request: Request, first: Answer, model: LoadedModel, runner: ModelRunner
    ) -> Callable[[int], Awaitable[Answer]]:
        """Starts further answers to the request of ``first``."""
        generation_request = first.request

        async def begin(n: int) -> Answer:
            varied = replace(generation_request, options=options_of_choice(generation_request.options, n))
            bridge = GenerationBridge(_beginning(runner, varied))
            if not await start_bridge(bridge, request.receive):
                raise first.given_up()
            return Answer(generation_request, first.reply, bridge, model, self.metrics)

        return begin


async def _whole(request: Request, answer: Answer) -> Complete:
    watcher = asyncio.create_task(stop_when_gone(request.receive, answer.bridge))
    try:
        return await answer.complete()
    finally:
        watcher.cancel()
        await answer.bridge.close()


async def start_bridge(bridge: GenerationBridge, receive: Receive) -> bool:
    """Start a generation; whether its client stayed until it was accepted. Raises the error with which it was refused.

    What has to be done before (a schema to compile, a template to render) may take a while, and ends with its client.
    """
    starting = asyncio.ensure_future(bridge.start())
    watcher = asyncio.create_task(stop_when_gone(receive, bridge))
    try:
        await asyncio.wait({starting, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            await bridge.close()
            starting.cancel()
            return False
        starting.result()
        return True
    except LeapError as error:
        raise unacceptable(error) from None
    except asyncio.CancelledError:
        bridge.abandon()
        raise
    finally:
        watcher.cancel()


def check_voice(runner: ModelRunner) -> None:
    """Raises an error for a model that does not speak."""
    if not runner.speaks:
        raise unacceptable(
            LeapGenerationError(
                f"the model {runner.model_id} does not speak", hint="use a model that speaks, such as LFM2.5-Audio-1.5B"
            )
        )


def _beginning(runner: ModelRunner, generation_request: GenerationRequest) -> Callable[[], Generation]:
    prompt, suffix = generation_request.prompt, generation_request.suffix
    if prompt is None:
        return lambda: runner.start(
            generation_request.messages, generation_request.functions, generation_request.options
        )
    if suffix is not None:
        return lambda: runner.start_text(runner.infill_prompt(prompt, suffix), generation_request.options)
    return lambda: runner.start_text(prompt, generation_request.options)
