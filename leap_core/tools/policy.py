"""What a tool may do: whether it runs at all, for how long, and how much it may say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import LeapOptionsError
from ..messages import LeapFunctionCall

if TYPE_CHECKING:
    from ..functions.declaration import LeapFunction

ALLOW, ASK, DENY = "allow", "ask", "deny"
DECISIONS = (ALLOW, ASK, DENY)


@dataclass(frozen=True)
class ToolPolicy:
    """One tool's limits. ``decision``: allow, ask (the user decides on each call) or deny. ``timeout`` in
    seconds; ``output_limit`` in bytes of UTF-8, what is beyond is cut off.

    ``isolated``: None runs a Python callable in a child process, which is killed when its time is up, where another
    process can import it; one of the script itself, a closure or a method runs in this process, on a thread that is
    abandoned when its time is up. True refuses those at once; False runs every callable in this process."""

    decision: str = ASK
    timeout: float = 30.0
    output_limit: int = 64 * 1024
    isolated: bool | None = None

    def __post_init__(self) -> None:
        if self.decision not in DECISIONS:
            raise LeapOptionsError("policy", f"{self.decision!r} is not one of {', '.join(DECISIONS)}")
        if (
            isinstance(self.timeout, bool)
            or not isinstance(self.timeout, (int, float))
            or not 0 < self.timeout < math.inf
        ):
            raise LeapOptionsError("timeout", f"{self.timeout!r} is not a number of seconds above 0")
        if isinstance(self.output_limit, bool) or not isinstance(self.output_limit, int) or self.output_limit < 1:
            raise LeapOptionsError("output_limit", f"{self.output_limit!r} is not a number of bytes above 0")


@dataclass(frozen=True)
class FunctionPolicy:
    """How the calls of a conversation are treated.

    ``tools`` by name, ``default`` for the others. ``rounds``: most times that results go back to the model. ``ask``
    decides on a call where the policy is ask; None means that no user is there, so the call is denied.
    """

    tools: Mapping[str, ToolPolicy] = field(default_factory=dict)
    default: ToolPolicy = field(default_factory=ToolPolicy)
    rounds: int = 8
    ask: Callable[[LeapFunction, LeapFunctionCall], bool] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 1:
            raise LeapOptionsError("rounds", f"{self.rounds!r} is not a number above 0")

    def of(self, name: str) -> ToolPolicy:
        """The policy of the tool with this name."""
        return self.tools.get(name, self.default)

    def allowing(self, names: Sequence[str]) -> FunctionPolicy:
        """The same policy, with these tools allowed."""
        return replace(self, tools={**self.tools, **{n: replace(self.of(n), decision=ALLOW) for n in names}})


def policy_from_table(table: object, policies: FunctionPolicy | None = None) -> FunctionPolicy:
    """Read ``[tools]`` of the configuration: ``policy``, ``timeout``, ``output_limit`` and ``rounds`` for all, and in
    ``[tools.NAME]`` what differs for one. ``policies`` has the policies of tools that come with leap.

    Raises LeapOptionsError naming the entry.
    """
    policies = policies or FunctionPolicy()
    if not isinstance(table, Mapping):
        raise LeapOptionsError("tools", "expected a table")
    general = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    rounds = general.pop("rounds", policies.rounds)
    default = _read(general, policies.default, "tools")
    tools = {name: _read(general, policy, f"tools.{name}", keep=True) for name, policy in policies.tools.items()}
    for name, value in table.items():
        if isinstance(value, Mapping):
            tools[name] = _read(value, tools.get(name, default), f"tools.{name}")
    try:
        return FunctionPolicy(tools, default, rounds)
    except LeapOptionsError as error:
        raise LeapOptionsError(f"tools.{error.option}", error.reason) from None


def _read(values: Mapping[str, Any], base: ToolPolicy, path: str, *, keep: bool = False) -> ToolPolicy:
    """``base`` with these values. ``keep``: its decision stays as it is."""
    fields = {"policy": "decision", "timeout": "timeout", "output_limit": "output_limit"}
    for key in values:
        if key not in fields:
            raise LeapOptionsError(f"{path}.{key}", f"there is no such setting; known are {', '.join(fields)}, rounds")
    try:
        changed = {fields[key]: value for key, value in values.items() if not (keep and key == "policy")}
        return replace(base, **changed)
    except LeapOptionsError as error:
        raise LeapOptionsError(f"{path}.{error.option}", error.reason) from None
