"""Tools that models call and the page's person allows: run here, under the policy of the command line."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....json_fields import object_at, text_at
from ....messages import LeapFunctionCall
from ....responses import FunctionResult
from ....tools.execution import run_call
from ....tools.policy import ALLOW, ASK, DENY
from ....tools.run import refusal
from ..protocols.request_bodies import read_body
from ..sending.json_response import AsciiJSON
from ..sending.long_work import finish
from .services import PageServices

CALL_PATH = "/leap/tools/call"


class PageTools:
    """The tools of ``services``."""

    def __init__(self, services: PageServices) -> None:
        self._functions = {function.name: function for function in services.functions}
        self._policy = services.policy

    def routes(self, services: PageServices) -> list[Route]:
        return [services.route(CALL_PATH, self.call, "POST")]

    def described(self) -> list[dict[str, Any]]:
        """What the page shows of each, and hands to models."""
        return [
            {
                "name": function.name,
                "description": function.description,
                "decision": _shown(self._policy.of(function.name).decision),
                "declaration": function.to_json_object(),
            }
            for function in self._functions.values()
        ]

    async def call(self, request: Request) -> Response:
        """``{"name", "arguments", "allowed"}``: run a call. ``allowed``: the person was asked, and agreed."""
        call, allowed = await read_body(request, _call)
        policy = replace(self._policy, ask=lambda _function, _call: allowed)
        function = self._functions.get(call.name)

        def work(left: threading.Event) -> FunctionResult:
            result = refusal(function, call, policy)
            if result is not None or function is None:
                return result or FunctionResult(call, "", "there is no such function")
            return run_call(function, call, policy.of(call.name), left)

        result = await finish(request, work)
        return AsciiJSON({**result.to_json(), "content": result.message("call").text})


def _shown(decision: str) -> str:
    """What the page does: where a model would decide whether to ask, it asks."""
    return decision if decision in (ALLOW, DENY) else ASK


def _call(body: Any) -> tuple[LeapFunctionCall, bool]:
    fields = object_at(body, "body")
    arguments = object_at(fields.get("arguments"), "arguments")
    return LeapFunctionCall(text_at(fields.get("name"), "name"), arguments), fields.get("allowed") is True
