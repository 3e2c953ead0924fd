"""What a tool may do: whether it runs at all, for how long, and how much it may say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from ..conversation.messages import ChatMessageRole, LeapFunctionCall
from ..errors import LeapError, LeapOptionsError
from ..system.configuration import TOOL_SETTINGS, check_setting, default_of
from ..system.dataclass import dataclass
from ..tasks.decisions.answer_probabilities import side_by_side
from ..tasks.decisions.deciding import decide
from ..tasks.decisions.questions import Decision, Question

if TYPE_CHECKING:
    from ..conversation.calls.declaration import LeapFunction
    from ..conversation.conversation import Conversation

ALLOW, ASK, DECIDE, DENY = "allow", "ask", "decide", "deny"


@dataclass(frozen=True)
class ToolPolicy:
    """One tool's limits. ``decision``: allow, ask (the user decides on each call), decide or deny. ``timeout`` in
    seconds; ``output_limit`` in bytes of UTF-8, what is beyond is cut off.

    ``decide`` puts ``question`` about each call to the model of the conversation: a call runs where yes has the
    probability ``threshold`` or more, and the user decides on every other.

    ``isolated``: None runs a Python callable in a child process, which is killed when its time is up, where another
    process can import it; one of the script itself, a closure or a method runs in this process, on a thread that is
    abandoned when its time is up. True refuses those at once; False runs every callable in this process."""

    decision: str = default_of("tools.policy")
    timeout: float = default_of("tools.timeout")
    output_limit: int = default_of("tools.output_limit")
    isolated: bool | None = None
    threshold: float = default_of("tools.threshold")
    question: str = default_of("tools.question")

    def __post_init__(self) -> None:
        check_setting("tools.policy", self.decision, "policy")
        check_setting("tools.timeout", self.timeout, "timeout")
        check_setting("tools.output_limit", self.output_limit, "output_limit")
        check_setting("tools.threshold", self.threshold, "threshold")
        check_setting("tools.question", self.question, "question")


@dataclass(frozen=True)
class FunctionPolicy:
    """How the calls of a conversation are treated.

    ``tools`` by name, ``default`` for the others. ``rounds``: most times that results go back to the model. ``ask``
    decides on a call where the policy is ask, or decide is in doubt; None means that no user is there, so the call is
    denied.
    """

    tools: Mapping[str, ToolPolicy] = field(default_factory=dict)
    default: ToolPolicy = field(default_factory=ToolPolicy)
    rounds: int = default_of("tools.rounds")
    ask: Callable[[LeapFunction, LeapFunctionCall], bool] | None = None

    def __post_init__(self) -> None:
        check_setting("tools.rounds", self.rounds, "rounds")

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
    fields = {each.key: "decision" if each.key == "policy" else each.key for each in TOOL_SETTINGS}
    for key in values:
        if key not in fields:
            raise LeapOptionsError(f"{path}.{key}", f"there is no such setting; known are {', '.join(fields)}, rounds")
    try:
        changed = {fields[key]: value for key, value in values.items() if not (keep and key == "policy")}
        return replace(base, **changed)
    except LeapOptionsError as error:
        raise LeapOptionsError(f"{path}.{error.option}", error.reason) from None


def doubt_of(
    conversation: Conversation,
    function: LeapFunction,
    call: LeapFunctionCall,
    policy: ToolPolicy,
    cancelled: Callable[[], bool],
) -> str | None:
    """Why the call needs the user's word; None where the model is sure enough. What cannot be decided is in doubt."""
    said = [message.text for message in conversation.history if message.role is ChatMessageRole.USER]
    state = {
        "user": said[-1] if said else "",
        "tool": {"name": function.name, "description": function.description},
        "call": {"name": call.name, "arguments": call.arguments},
    }
    runner = conversation.model_runner
    decision = Decision(state, (Question.predicate(policy.question),))
    try:
        (answer,) = decide(runner, decision, ask=side_by_side(runner, cancelled)).answers
    except LeapError as error:
        return f"the policy could not decide ({error.message})"
    if answer.probability >= policy.threshold:
        return None
    return f"the model is {answer.probability:.0%} sure of the call, not {policy.threshold:.0%}"
