"""The endpoints that generate: a request is read, begun on its model, and its responses sent on as they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...conversation.generator import Generation, require_voice
from ...conversation.loading_options import refuse_adapters
from ...conversation.media.fetching import UrlAccess
from ...conversation.request_facts import failed
from ...conversation.runner import ModelRunner
from ...errors import LeapGenerationError, LeapGenerationPromptExceedContextLengthError, LeapSerializationError
from ...protocols.anthropic import MessagesReply, read_messages
from ...protocols.openai.replies import OpenAIReply, ReplyWriter
from ...protocols.openai.requests import GenerationRequest, options_of_choice, read_chat, read_completions
from ...protocols.openai.responses_reply import CompactedReply, ResponsesReply
from ...protocols.openai.responses_request import (
    ResponsesRequest,
    compacting,
    conversation_of,
    previous_of,
    read_responses,
)
from ...protocols.openai.speech import SpokenAnswers
from ..answers import Answers, GenerationBridge, ServedAnswer, reserved, start_bridge
from ..http import AsciiJSON, Read, check_countable, finish, read_body, unacceptable
from ..keep_alive import PING_SECONDS, answer_or_stream
from ..metrics import Metrics, id_of_request
from ..models.loaded_model import LoadedModel
from ..models.loaded_models import LoadedModels
from .conversations import Conversations
from .responses import KeptResponses, StoredResponses


class GenerationEndpoints:
    """Chat, completions, responses and messages. ``running`` are the generations by the id in their header; ``urls``:
    what the URLs of pictures may reach; ``own_clients``: they may name files of this machine as adapters;
    ``ping_interval``: seconds without data until a stream sends a keep-alive, 0 for never, where a request does not
    say."""

    def __init__(
        self,
        models: LoadedModels,
        metrics: Metrics | None = None,
        kept: KeptResponses | None = None,
        *,
        urls: UrlAccess = UrlAccess.DATA,
        own_clients: bool = False,
        ping_interval: float = PING_SECONDS,
    ) -> None:
        self._models = models
        self.ping_interval = ping_interval
        self.urls = urls
        self._own_clients = own_clients
        self._spoken = SpokenAnswers()
        self._kept = kept or KeptResponses()
        self.metrics = metrics or Metrics(models)
        self.conversations = Conversations(self._kept)
        self.stored: StoredResponses | None = None
        """Those that are fetched again, and answered in the background; where it is given."""
        self.running: MutableMapping[str, Answers] = {}

    async def chat(self, request: Request) -> Response:
        """A conversation's next message."""
        generation_request = await self._read(
            request, lambda body: read_chat(self._spoken.filled_in(body), urls=self.urls)
        )
        return await self.answer(
            request, [generation_request], lambda model, *_: OpenAIReply(generation_request, model, self._spoken.keep)
        )

    async def completion(self, request: Request) -> Response:
        """The continuation of a text, or of each of several."""
        prompts = await read_body(request, read_completions)
        return await self.answer(
            request, prompts, lambda model, prompts, _: OpenAIReply(prompts[0], model, prompts=prompts)
        )

    async def responses(self, request: Request) -> Response:
        """The next response of OpenAI's newer protocol."""

        def read(given: tuple[Any, list[dict[str, Any]]]) -> Any:
            return read_responses(*given, urls=self.urls), *given

        generation_request, body, history = await read_body(request, read, load=self._history)
        conversation = conversation_of(body)

        def begun(id: str) -> None:
            if conversation is not None:
                self.conversations.expect(conversation, id)

        if generation_request.background:
            if self.stored is None:
                raise LeapSerializationError("is not supported by this server", path="background")
            return await self.stored.begin(generation_request, body, history, begun)

        def write(model: str, *_: object) -> ReplyWriter:
            def keep(answer: dict[str, Any], message: dict[str, Any]) -> str | None:
                messages = [*history, *generation_request.own, message]
                record = {"id": answer["id"], "created_at": answer["created_at"], "model": model, "messages": messages}
                record |= {"body": answer, "input": body.get("input")}
                problem = self._kept.keep(record, durable=generation_request.keep is True)
                if conversation is not None:
                    problem = self.conversations.add(conversation, body.get("input"), answer["output"]) or problem
                return problem

            return ResponsesReply(generation_request, model, keep)

        return await self.answer(request, [generation_request.chat], write)

    def _history(self, body: object) -> list[dict[str, Any]]:
        """The chat messages that a request to ``responses`` continues from. Waits for the disk."""
        conversation, previous = conversation_of(body), previous_of(body)
        if conversation is not None:
            return self.conversations.history(conversation)
        if previous is None:
            return []
        if self.stored is not None:
            self.stored.settle(previous)
        return self._kept.history(previous)

    async def compact(self, request: Request) -> Response:
        """A conversation in short, with which a request to ``responses`` may continue."""

        def read(given: tuple[Any, list[dict[str, Any]]]) -> ResponsesRequest:
            asked = read_responses(compacting(given[0]), given[1], urls=self.urls)
            return replace(asked, own=asked.own[:-1])

        asked = await read_body(request, read, load=lambda body: self._history(compacting(body)))
        return await self.answer(request, [asked.chat], lambda model, *_: CompactedReply(asked, model))

    async def input_tokens(self, request: Request) -> Response:
        """How many tokens the prompt of a request to ``responses`` has."""

        def read(given: tuple[Any, list[dict[str, Any]]]) -> GenerationRequest:
            return read_responses(*given, urls=self.urls).chat

        count = await self._count(request, await read_body(request, read, load=self._history))
        return AsciiJSON({"object": "response.input_tokens", "input_tokens": count})

    async def messages(self, request: Request) -> Response:
        """The next message of Anthropic's protocol."""
        generation_request = await self._read(request, lambda body: read_messages(body, urls=self.urls))
        return await self.answer(
            request,
            [generation_request],
            lambda model, _, tokens: MessagesReply(generation_request, model, prompt_tokens=tokens),
        )

    async def count_tokens(self, request: Request) -> Response:
        """How many tokens the prompt of a request to ``messages`` has."""
        generation_request = await self._read(request, lambda body: read_messages(body, counts=True, urls=self.urls))
        count = await self._count(request, generation_request)
        return AsciiJSON({"input_tokens": count})

    async def _count(self, request: Request, generation_request: GenerationRequest) -> int:
        check_countable(*(message.text for message in generation_request.messages))
        with ExitStack() as using:
            model = await reserved(self._models, generation_request.model, request, using)
            runner = using.enter_context(model.in_use(answers=False))
            messages, functions = generation_request.messages, generation_request.functions
            return await finish(request, lambda _: runner.get_prompt_tokens_size(messages, True, functions))

    async def _read(self, request: Request, read: Callable[[Any], Read]) -> Read:
        return await read_body(request, read)

    async def answer(
        self,
        request: Request,
        prompts: Sequence[GenerationRequest],
        write: Callable[[str, Sequence[GenerationRequest], int | None], ReplyWriter],
    ) -> Response:
        """Answer prompts, which differ in nothing but what is said, with what ``write`` makes of the model's name, the
        prompts and the tokens of the first, where they are known. A stream begins with keep-alives where its request
        is not accepted promptly."""
        first = prompts[0]
        interval = self.ping_interval if first.ping_interval is None else first.ping_interval
        if not first.stream or first.events or not interval:  # leap's own client sees what the engine does
            return await self._accepted(request, prompts, write)
        preparing = asyncio.create_task(self._accepted(request, prompts, write, interval))
        return await answer_or_stream(preparing, lambda: write(first.model or "", prompts, None), interval)

    async def _accepted(
        self,
        request: Request,
        prompts: Sequence[GenerationRequest],
        write: Callable[[str, Sequence[GenerationRequest], int | None], ReplyWriter],
        ping_interval: float = 0.0,
    ) -> Response:
        """The answers to prompts. Raises where they are refused."""
        asked = time.monotonic()
        with ExitStack() as using:
            model = await reserved(self._models, prompts[0].model, request, using, keep_alive=prompts[0].keep_alive)
            loading = time.monotonic() - asked
            prompts = [self._with_adapters(prompt, model) for prompt in prompts]
            priority = prompts[0].options.priority
            runner = using.enter_context(model.in_use(priority=priority))
            if prompts[0].audio is not None:
                check_voice(runner)
            if any(prompt.prompt_tokens is not None and prompt.echo for prompt in prompts):
                prompts = await asyncio.to_thread(lambda: [_with_text(runner, prompt) for prompt in prompts])
            first = prompts[0]
            bridge = GenerationBridge(_beginning(runner, first))
            try:
                if not await start_bridge(bridge, request.receive):
                    return Response()  # the client left
            except LeapGenerationPromptExceedContextLengthError as error:  # for leap why
                ended = {"id": id_of_request.get(), "model": model.name, "error": error.message, "finish": None}
                times = {"asked": time.time(), "seconds": time.monotonic() - asked}
                self.metrics.recent.append({**ended, **times, "facts": failed(error).to_json()})
                raise
            reply = write(first.model or model.name, prompts, bridge.prompt_tokens)
            for _ in range(1, len(prompts) * first.choices):
                using.enter_context(model.in_use(priority=priority))
            using.callback(self.running.pop, reply.id, None)
            answer = ServedAnswer(first, reply, bridge, model, self.metrics, loading, own_client=self._own_clients)
            begin_next = self._next(request, answer, prompts, model, runner)
            answers = Answers(answer, using.pop_all(), begin_next, prompts=len(prompts), ping_interval=ping_interval)
            self.running[reply.id] = answers
            return answers

    def _with_adapters(self, generation_request: GenerationRequest, model: LoadedModel) -> GenerationRequest:
        """The request with the adapters that it names behind the model, or in its options."""
        options, adapters = generation_request.options, model.named_adapters(generation_request.model)
        if adapters is not None:
            return replace(generation_request, options=replace(options, adapters=adapters))
        if not self._own_clients:
            refuse_adapters(options.adapters, model.name)
        return generation_request

    def _next(
        self,
        request: Request,
        first: ServedAnswer,
        prompts: Sequence[GenerationRequest],
        model: LoadedModel,
        runner: ModelRunner,
    ) -> Callable[[int], Awaitable[ServedAnswer]]:
        """Starts further answers to the request of ``first``, which asked for ``prompts``."""

        async def begin(n: int) -> ServedAnswer:
            prompt, choice = divmod(n, first.request.choices)
            generation_request = prompts[prompt]
            varied = replace(generation_request, options=options_of_choice(generation_request.options, choice))
            bridge = GenerationBridge(_beginning(runner, varied))
            if not await start_bridge(bridge, request.receive):
                raise first.given_up()
            return ServedAnswer(
                generation_request, first.reply, bridge, model, self.metrics, own_client=self._own_clients
            )

        return begin


def check_voice(runner: ModelRunner) -> None:
    """Raises an error for a model that does not speak."""
    try:
        require_voice(runner)
    except LeapGenerationError as error:
        raise unacceptable(error) from None


def _with_text(runner: ModelRunner, prompt: GenerationRequest) -> GenerationRequest:
    """The request with the text of the tokens that its prompt was given as."""
    tokens = prompt.prompt_tokens
    if tokens is None:
        return prompt
    return replace(prompt, prompt=runner.detokenize(tokens), first_token=runner.detokenize(tokens[:1]))


def _beginning(runner: ModelRunner, prompt: GenerationRequest) -> Callable[[], Generation]:
    text, options = prompt.prompt, prompt.options
    if text is None:
        return lambda: runner.start(prompt.messages, prompt.functions, options)
    if prompt.suffix is not None:
        suffix = prompt.suffix
        return lambda: runner.start_text(runner.infill_prompt(text, suffix), options)
    tokens = prompt.prompt_tokens
    return lambda: runner.start_text(text if tokens is None else tokens, options)
