"""The endpoints that generate: a request is read, begun on its model, and its responses sent on as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive

from ...anthropic.replies import MessagesReply
from ...anthropic.requests import read_messages
from ...errors import LeapError, LeapGenerationError
from ...media.fetching import UrlAccess
from ...openai.audio import SpokenAnswers
from ...openai.replies import OpenAIReply
from ...openai.requests import GenerationRequest, read_chat, read_completion
from ...openai.responses_replies import ResponsesReply
from ...openai.responses_requests import previous_of, read_responses
from ...responses import Complete
from ...runner.contract import Generation, ModelRunner
from .answers import GENERATION_HEADER, Answer, EventStream, ReplyWriter, stop_when_gone
from .event_loop_bridge import GenerationBridge
from .http_errors import unacceptable
from .kept_responses import KeptResponses
from .loaded_models import LoadedModel, LoadedModels
from .metrics import Metrics
from .request_bodies import Read, read_body

SEEDS = 2**64


class GenerationEndpoints:
    """Chat, completions, responses and messages. ``running`` are the generations by the id in their header; ``urls``:
    what the URLs of pictures may reach."""

    def __init__(
        self,
        models: LoadedModels,
        metrics: Metrics | None = None,
        kept: KeptResponses | None = None,
        *,
        urls: UrlAccess = UrlAccess.DATA,
    ) -> None:
        self._models = models
        self._urls = urls
        self._spoken = SpokenAnswers()
        self._kept = kept or KeptResponses()
        self.metrics = metrics or Metrics(models)
        self.running: MutableMapping[str, GenerationBridge] = {}

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

        generation_request, history = await self._read(request, read)

        def write(model: str) -> ReplyWriter:
            def keep(id: str, message: dict[str, Any]) -> None:
                self._kept.keep(
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
                return await self._several(request, answer, model, runner, using)
            if generation_request.stream:
                return EventStream(answer, using.pop_all())
            complete = await _whole(request, answer)
            return JSONResponse(reply.whole(complete), headers={GENERATION_HEADER: reply.id})

    async def _several(
        self, request: Request, first: Answer, model: LoadedModel, runner: ModelRunner, using: ExitStack
    ) -> Response:
        """Several answers to one request: the first computes the prompt, and the others begin when that is done."""
        generation_request, reply = first.request, first.reply
        assert isinstance(reply, OpenAIReply)
        whole = asyncio.ensure_future(_whole(request, first))
        prompt_is_computed = asyncio.ensure_future(first.bridge.wait_for_first())
        tasks = [whole]
        try:
            await asyncio.wait({whole, prompt_is_computed}, return_when=asyncio.FIRST_COMPLETED)
            for n in range(1, generation_request.choices):
                using.enter_context(model.in_use())
                bridge = GenerationBridge(_beginning(runner, _varied(generation_request, n)))
                if not await start_bridge(bridge, request.receive):
                    return Response()
                answer = Answer(generation_request, reply, bridge, model, self.metrics)
                tasks.append(asyncio.ensure_future(_whole(request, answer)))
            completes = await asyncio.gather(*tasks)
        finally:  # one that failed, or a client that left, ends them all
            for task in (*tasks, prompt_is_computed):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        headers = {GENERATION_HEADER: reply.id}
        if not generation_request.stream:
            return JSONResponse(reply.several(completes), headers=headers)
        return Response(reply.several_events(completes), media_type="text/event-stream", headers=headers)


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
    prompt = generation_request.prompt
    if prompt is None:
        return lambda: runner.start(
            generation_request.messages, generation_request.functions, generation_request.options
        )
    return lambda: runner.start_text(prompt, generation_request.options)


def _varied(generation_request: GenerationRequest, n: int) -> GenerationRequest:
    """The same with another seed, or all answers would be one."""
    seed = generation_request.options.rng_seed
    return (
        generation_request
        if seed is None
        else replace(generation_request, options=replace(generation_request.options, rng_seed=(seed + n) % SEEDS))
    )
