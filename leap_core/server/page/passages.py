"""The passages of indexes for the page: a question -> a prompt that holds them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...conversation.embedding import EmbeddingRunner
from ...conversation.messages import ChatMessage
from ...conversation.runner import ModelRunner
from ...errors import LeapModelNotFoundError
from ...schemas.json_values import list_at, object_at, text_at
from ...tasks.search.citing import UNSUPPORTED, Citations
from ...tasks.search.searching import Searcher, Source, prompt_of
from ...tasks.search.updating import Indexes, IndexNotFoundError
from ..answers import reserved
from ..http import AsciiJSON, check_countable, finish, read_body
from ..models.loaded_models import LoadedModels
from .page_sessions import PageServices

PASSAGES_PATH, CITED_PATH = "/leap/passages", "/leap/cited"
MOST_PASSAGES = 5
SHARE = 2
"""Passages take at most this part of a model's context: the rest is for the conversation and the answer."""


class PagePassages:
    """Searches the indexes of ``services``; vectors are made by ``models``."""

    def __init__(self, services: PageServices, models: LoadedModels) -> None:
        assert services.index_directory is not None
        self._names, self._indexes = services.indexes, Indexes(services.index_directory)
        self._models = models

    def routes(self, services: PageServices) -> list[Route]:
        return [
            services.route(PASSAGES_PATH, self.passages, "POST"),
            services.route(CITED_PATH, self.cited, "POST"),
        ]

    async def passages(self, request: Request) -> Response:
        """``{"index", "question", "model"}`` -> ``system``, a prompt with the passages that the model has space for,
        and those as ``sources``; ``note`` says where words alone were searched."""
        index, question, name = await read_body(request, _question)
        check_countable(question)
        if index not in self._names:
            raise IndexNotFoundError(f"the index {index!r} is not offered", hint=f"there is {', '.join(self._names)}")
        with ExitStack() as using:
            embedder, note = await self._embedder(request, index, using)
            model = await reserved(self._models, name, request, using)
            runner = using.enter_context(model.in_use(answers=False))

            def work(_left: threading.Event) -> tuple[Sequence[ChatMessage], list[Source]]:
                with self._indexes.open(index) as opened:
                    hits = Searcher(opened, embedder).search(question, most=MOST_PASSAGES)
                names = (model.name, *runner.header_names)
                return prompt_of(question, hits, lambda messages: _fits(runner, messages), model_names=names)

            messages, sources = await finish(request, work)
        system = messages[0].text if sources else None
        return AsciiJSON({"system": system, "sources": [_described(source) for source in sources], "note": note})

    async def cited(self, request: Request) -> Response:
        """``{"question", "answer", "sources"}``, as ``passages`` gave them -> ``text``, the answer with its citations;
        ``note`` where no source supports it."""
        question, answer, sources = await read_body(request, _answered)
        text, is_supported = await finish(request, lambda _left: Citations(question, sources).checked(answer))
        return AsciiJSON({"text": text, "note": None if is_supported else UNSUPPORTED})

    async def _embedder(
        self, request: Request, index: str, using: ExitStack
    ) -> tuple[EmbeddingRunner | None, str | None]:
        """The model that made the index's vectors, None and why where words alone are searched."""
        reference = await asyncio.to_thread(self._model_of, index)
        if reference is None:
            return None, None
        try:
            model = await reserved(self._models, reference, request, using, embeds=True)
        except LeapModelNotFoundError as error:
            return None, f"only words are searched: {error.message}"
        return using.enter_context(model.embedder_in_use()), None

    def _model_of(self, index: str) -> str | None:
        with self._indexes.open(index) as opened:
            return None if opened.settings is None else opened.settings.model


def _fits(runner: ModelRunner, messages: Sequence[ChatMessage]) -> bool:
    return runner.get_prompt_tokens_size(list(messages)) <= runner.context_size // SHARE


def _described(source: Source) -> dict[str, Any]:
    passage = source.hit.passage
    return {
        "number": source.number,
        "path": passage.path,
        "first": passage.first,
        "last": passage.last,
        "kind": passage.kind,
        "heading": passage.heading,
        "text": passage.text,
    }


def _question(body: Any) -> tuple[str, str, str | None]:
    """The index, what it is asked, and the model that answers, where one is named."""
    fields = object_at(body, "body")
    index, question = (text_at(fields.get(name), name) for name in ("index", "question"))
    return index, question, None if fields.get("model") is None else text_at(fields["model"], "model")


def _answered(body: Any) -> tuple[str, str, dict[int, str]]:
    """What was asked and answered, and the text of each source."""
    fields = object_at(body, "body")
    question, answer = (text_at(fields.get(name), name) for name in ("question", "answer"))
    sources = [object_at(each, "sources") for each in list_at(fields.get("sources"), "sources")[:MOST_PASSAGES]]
    texts = [f"{each.get('heading') or ''}\n{text_at(each.get('text'), 'sources.text')}" for each in sources]
    check_countable(answer)
    return question, answer, dict(enumerate(texts, 1))


def routes(services: PageServices, models: LoadedModels) -> list[Route]:
    """Those of the feature, for ``routes.FEATURES``."""
    return PagePassages(services, models).routes(services) if services.indexes else []
