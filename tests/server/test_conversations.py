"""Conversations of the Responses API with the official client, strictly; the queue is scripted."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest

from leap_core.conversation.responses import Chunk

from .test_stored_responses import DONE, Queue, serving


@pytest.mark.slow
def test_a_conversation_continues_by_its_id_and_survives_the_server(tmp_path: Path, leap_home: Path) -> None:
    queue = Queue()

    async def begin(client: openai.AsyncOpenAI) -> str:
        first = {"type": "message", "role": "user", "content": "I am Zoë."}
        made = await client.conversations.create(items=[first], metadata={"topic": "names"})  # type: ignore[list-item]
        response = await client.responses.create(model="builtin", input="Who am I?", conversation=made.id)
        assert response.conversation is not None and response.conversation.id == made.id
        stream = await client.responses.create(model="builtin", input="And?", conversation={"id": made.id}, stream=True)
        assert [event.type async for event in stream][-1] == "response.completed"
        return made.id

    id = serving(tmp_path, queue, begin, "Zoë.", "That is all.")

    async def go_on(client: openai.AsyncOpenAI) -> None:
        client._strict_response_validation = True
        made = await client.conversations.retrieve(id)
        assert made.metadata == {"topic": "names"}
        changed = await client.conversations.update(id, metadata={"topic": "people"})
        assert changed.metadata == {"topic": "people"}
        items = [item async for item in client.conversations.items.list(id, order="asc", limit=2)]
        texts = [item.content[0].text for item in items]  # type: ignore[union-attr]
        assert texts == ["I am Zoë.", "Who am I?", "Zoë.", "And?", "That is all."]
        assert (await client.conversations.items.retrieve(items[1].id, conversation_id=id)) == items[1]  # type: ignore[arg-type]
        await client.conversations.items.delete(items[4].id, conversation_id=id)  # type: ignore[arg-type]
        call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        result = {"type": "function_call_output", "call_id": "c1", "output": "clear"}
        added = await client.conversations.items.create(id, items=[call, result])  # type: ignore[list-item]
        assert [item.type for item in added.data] == ["function_call", "function_call_output"]

        asked = {"model": "builtin", "input": "Count.", "conversation": id}
        response = await client.responses.create(background=True, **asked)  # type: ignore[call-overload]
        messages = queue.asked[0].request.messages
        assert [message.text for message in messages] == [
            "I am Zoë.",
            "Who am I?",
            "Zoë.",
            "And?",
            "",
            "clear",
            "Count.",
        ]
        with pytest.raises(openai.BadRequestError, match="has not ended"):
            await client.responses.create(**asked)  # type: ignore[call-overload]
        queue.say(Chunk("One two three."), DONE, state="succeeded")
        newest = (await client.conversations.items.list(id, limit=1)).data[0]
        assert newest.content[0].text == "One two three."  # type: ignore[union-attr]
        assert (await client.responses.retrieve(response.id)).output_text == "One two three."
        assert len([item async for item in client.conversations.items.list(id)]) == 8
        assert (await client.conversations.delete(id)).deleted
        with pytest.raises(openai.NotFoundError, match="conversation"):
            await client.responses.create(**asked)  # type: ignore[call-overload]

    serving(tmp_path, queue, go_on)


def test_a_conversation_is_not_a_response_and_belongs_to_its_key(tmp_path: Path, leap_home: Path) -> None:
    queue = Queue()

    async def begin(client: openai.AsyncOpenAI) -> str:
        id = (await client.conversations.create()).id
        assert (await client.conversations.items.list(id)).data == []
        for wrong in ({"previous_response_id": id}, {"conversation": id, "previous_response_id": "resp_1"}):
            with pytest.raises(openai.BadRequestError):
                await client.responses.create(model="builtin", input="Hi", **wrong)
        with pytest.raises(openai.BadRequestError, match="items"):
            await client.conversations.items.create(id, items=[{"type": "nothing"}])  # type: ignore[list-item]
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(id)
        return id

    id = serving(tmp_path, queue, begin)

    async def other(client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.NotFoundError):
            await client.conversations.retrieve(id)

    serving(tmp_path, queue, other, key="another")
