"""What an endpoint answers instead of a reply, as leap's errors: one line each, never with the key in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from ...errors import LeapEndpointError, LeapError, LeapGenerationPromptExceedContextLengthError, LeapOptionsError
from ...models.aliases_and_endpoints import Endpoint
from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass
from ...system.http import PASSING, failure, retry_after
from ..openai.fields import FIELDS

LONGEST_MESSAGE = 300
NO_TEXT = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
COUNTS = re.compile(r"maximum context length is (\d+) tokens.{0,200}?(\d+) tokens", re.DOTALL)
OF_LEAP = re.compile(r"the prompt has (?:more than )?(\d+) tokens and the context holds (\d+)")
OPTION_OF_FIELD = {name: row.name for name, row in FIELDS.items()}
ADD = "leap models add-endpoint NAME URL --key-variable VARIABLE says where the key is"
SPENT = ("insufficient_quota", "billing_hard_limit_reached")
"""Codes of 429 that waiting does not change."""
FOR_GOOD = re.compile(rf"invalid|unsupported|image|empty_image|context_length|{'|'.join(SPENT)}")
"""The beginnings of codes of events that asking again does not change."""


@dataclass(frozen=True)
class Refusal:
    """An answer that is no reply. ``body`` is its beginning."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def _error(self) -> JsonObject:
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        if isinstance(value, list) and value:
            value = value[0]
        error = value.get("error", value) if isinstance(value, dict) else {}
        return error if isinstance(error, dict) else {"message": error}

    @property
    def code(self) -> str:
        return str(self._error.get("code") or self._error.get("type") or "")

    @property
    def param(self) -> str | None:
        """The field at fault, where the endpoint names it."""
        value = self._error.get("param")
        return value if isinstance(value, str) and value else None

    @property
    def message(self) -> str:
        """What the endpoint says, unchanged."""
        value = self._error.get("message") or self._error.get("detail") or ""
        return value if isinstance(value, str) else json.dumps(value)

    @property
    def is_page(self) -> bool:
        """Whether it is a web page."""
        kind = self.headers.get("content-type", "").lower()
        return "html" in kind or self.body.lstrip()[:15].lower().startswith((b"<!doctype", b"<html"))

    @property
    def line(self) -> str:
        """Status and reason."""
        return f"{self.status} {self.reason}".strip()

    @property
    def is_spent(self) -> bool:
        return self.code in SPENT

    @property
    def after(self) -> float | None:
        """The seconds that the endpoint asks to be left alone; None where it says nothing of it."""
        return retry_after(self.headers)


class NoSuchPathError(LeapEndpointError):
    """A status that says that there is no such address, and nothing of a model."""


class EndpointErrors:
    """Says in one line what went wrong at an endpoint, without its key."""

    def __init__(self, endpoint: Endpoint, key: str | None, what: str = "chats") -> None:
        self._endpoint, self._key, self.what = endpoint, key, what
        self._host = endpoint.host

    def plain(self, text: str) -> str:
        """A text of the endpoint's as one short line without its key."""
        if self._key:
            text = text.replace(self._key, "***")
        text = NO_TEXT.sub(" ", text).strip()
        return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"

    def of_refusal(self, refusal: Refusal, tries: int = 1) -> LeapError:
        """The error for an answer that is no reply."""
        status, said = refusal.status, self.plain(refusal.message)
        says = f": {said}" if said else ""
        if refusal.is_page:
            return LeapEndpointError(
                f"{self._host} answered with a web page ({refusal.line})",
                hint=f"check the address {self._endpoint.url}; most end in /v1",
                status=status,
                of_request=status >= 500,
                may_pass=status in PASSING,
            )
        if status == 401:
            what = "does not accept the key" if self._key else "wants a key"
            return LeapEndpointError(f"{self._host} {what} (401){says}", hint=self._about_key(), status=status)
        if status == 403:
            return LeapEndpointError(
                f"{self._host} does not allow it (403){says}", hint="check what the key may do", status=status
            )
        if status in (404, 405):
            kind = LeapEndpointError if "model" in refusal.message.lower() else NoSuchPathError
            return kind(
                f"{self._host} knows no model {self._endpoint.model!r}, or no {self.what} at {self._endpoint.url} "
                f"({status}){says}",
                hint="check the model's name and the address; most end in /v1",
                status=status,
            )
        if status == 429 and refusal.is_spent:
            return LeapEndpointError(f"{self._host} answers no more (429){says}", status=status)
        if status in PASSING or status >= 500:
            asked = f", asked {tries} times" if tries > 1 else ""
            return LeapEndpointError(
                f"{self._host} failed with {refusal.line}{asked}{says}",
                hint="ask again later" if status != 409 else None,
                status=status,
                of_request=True,
                may_pass=True,
            )
        return self._of_request(refusal, says)

    def _about_key(self) -> str:
        endpoint = self._endpoint
        if endpoint.key_variable is not None:
            return f"${endpoint.key_variable} has the key that was sent"
        return f"{endpoint.key_file} has the key that was sent" if endpoint.key_file else ADD

    def _of_request(self, refusal: Refusal, says: str) -> LeapError:
        """The request itself is refused."""
        counts = OF_LEAP.search(refusal.message)
        if counts is not None:
            return LeapGenerationPromptExceedContextLengthError(int(counts[1]), int(counts[2]))
        counts = COUNTS.search(refusal.message)
        if counts is not None:
            return LeapGenerationPromptExceedContextLengthError(int(counts[2]), int(counts[1]))
        param = refusal.param
        if param is not None and refusal.code != "context_length_exceeded":
            name = OPTION_OF_FIELD.get(param.partition(".")[0].partition("[")[0], param)
            return LeapOptionsError(self.plain(name), f"{self._host} refuses it ({refusal.status}){says}")
        return LeapEndpointError(
            f"{self._host} refuses the request ({refusal.line}){says}", status=refusal.status, of_request=True
        )

    def of_redirect(self, target: str) -> LeapEndpointError:
        """A redirect that is not followed: the key does not go to another server."""
        where = urlsplit(urljoin(self._endpoint.url, target))
        return LeapEndpointError(
            f"{self._host} redirects to {self.plain(where.netloc)}, where neither prompt nor key go",
            hint="if that is right, name its address: leap models add-endpoint NAME URL",
        )

    def of_event(self, value: object) -> LeapEndpointError:
        """An error in the middle of a stream."""
        error = value.get("error") if isinstance(value, dict) else value
        said, code = error, ""
        if isinstance(error, dict):
            said, code = error.get("message"), str(error.get("code") or error.get("type"))
        says = f": {self.plain(str(said))}" if said else ""
        return LeapEndpointError(
            f"{self._host} broke the answer off{says}", of_request=True, may_pass=FOR_GOOD.match(code) is None
        )

    def of_end(self) -> LeapEndpointError:
        """A stream that ended before the answer did."""
        return LeapEndpointError(
            f"the connection to {self._host} ended before the answer was complete", of_request=True, may_pass=True
        )

    def of_exception(self, error: Exception, tries: int) -> LeapEndpointError:
        """What httpx raises."""
        failed, asked = failure(error, self._host), f", asked {tries} times" if tries > 1 else ""
        if failed.lasts:
            return LeapEndpointError(self.plain(failed.reason), hint=failed.hint)
        return LeapEndpointError(
            f"{self.plain(failed.reason)}{asked}",
            hint="check the address, and that the server runs" if failed.unreachable else None,
            of_request=not failed.unreachable,
            may_pass=True,
        )
