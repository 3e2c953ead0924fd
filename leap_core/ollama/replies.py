"""leap's responses as Ollama's: a line of JSON for each piece, the last with counts and times in nanoseconds."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from ..errors import LeapError
from ..messages import LeapFunctionCall
from ..openai.replies import finish_reason
from ..responses import Chunk, Complete, FunctionCalls, MessageResponse, ReasoningChunk, TokenLogprob


NANOSECONDS = 1e9


def now() -> str:
    """The time as Ollama writes it."""
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


def error_text(error: LeapError) -> JsonObject:
    """Ollama's error object."""
    return {"error": error.message if error.hint is None else f"{error.message} ({error.hint})"}


class OllamaReply:
    """The answer to one request; ``model`` is how the request named it. ``chat``: a message, otherwise a text."""

    media_type = "application/x-ndjson"

    def __init__(self, model: str, *, chat: bool) -> None:
        self._model, self._chat = model, chat
        self.id = f"ollama_{secrets.token_hex(12)}"
        self.stores = False
        self._begun = self._loaded = time.monotonic()

    def begun(self) -> OllamaReply:
        """This, once the model is there and the answer begins."""
        self._loaded = time.monotonic()
        return self

    def whole(self, complete: Complete) -> JsonObject:
        """The answer in one piece."""
        message = complete.full_message
        calls = message.function_calls or ()
        body = self._body(message.text, message.reasoning_content, calls, complete.logprobs)
        return {**body, **self._end(complete)}

    def begin(self) -> bytes:
        """What a stream opens with."""
        return b""

    def pieces(self, response: MessageResponse) -> Iterator[bytes]:
        """The line that one response becomes."""
        if isinstance(response, Chunk):
            yield _line({**self._body(response.text), "done": False})
        elif isinstance(response, ReasoningChunk):
            yield _line({**self._body("", response.reasoning), "done": False})
        elif isinstance(response, FunctionCalls):
            yield _line({**self._body("", None, response.function_calls), "done": False})
        elif isinstance(response, Complete):
            yield _line({**self._body("", logprobs=response.logprobs), **self._end(response)})

    def end(self) -> bytes:
        """What a stream closes with."""
        return b""

    def failed(self, error: LeapError) -> bytes:
        """The line that ends a stream whose generation failed."""
        return _line(error_text(error))

    def without_answer(self, reason: str) -> JsonObject:
        """What is said where a model was only loaded or let go of."""
        return {**self._body(""), "done": True, "done_reason": reason}

    def _body(
        self,
        text: str,
        reasoning: str | None = None,
        calls: Sequence[LeapFunctionCall] = (),
        logprobs: Sequence[TokenLogprob] | None = None,
    ) -> JsonObject:
        body: JsonObject = {"model": self._model, "created_at": now()}
        thinking = {"thinking": reasoning} if reasoning else {}
        if self._chat:
            message: JsonObject = {"role": "assistant", "content": text, **thinking}
            if calls:
                functions = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
                message["tool_calls"] = [{"function": function} for function in functions]
            body["message"] = message
        else:
            body |= {"response": text, **thinking}
        if logprobs:
            body["logprobs"] = [_logprob(each) for each in logprobs]
        return body

    def _end(self, complete: Complete) -> JsonObject:
        end: JsonObject = {"done": True, "done_reason": "length" if finish_reason(complete) == "length" else "stop"}
        total, loading = time.monotonic() - self._begun, self._loaded - self._begun
        end |= {"total_duration": int(total * NANOSECONDS), "load_duration": int(loading * NANOSECONDS)}
        if complete.stats is not None:
            stats = complete.stats
            answering = total - loading
            reading = min(stats.time_to_first_token, answering)
            end |= {
                "prompt_eval_count": stats.prompt_tokens + stats.cached_prompt_tokens,
                "prompt_eval_duration": int(reading * NANOSECONDS),
                "eval_count": stats.completion_tokens,
                "eval_duration": int((answering - reading) * NANOSECONDS),
            }
        return end


def _logprob(each: TokenLogprob) -> JsonObject:
    text = each.token.decode("utf-8", "replace")
    top = [{"token": token.decode("utf-8", "replace"), "logprob": value} for token, value in each.top]
    return {"token": text, "logprob": each.logprob, "bytes": list(each.token), **({"top_logprobs": top} if top else {})}


def _line(value: JsonObject) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"
