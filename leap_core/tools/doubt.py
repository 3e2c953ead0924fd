"""The policy ``decide``: whether the model finds that a call should run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..decisions.deciding import decide
from ..decisions.questions import Decision, Question
from ..decisions.readouts import side_by_side
from ..errors import LeapError
from ..messages import ChatMessageRole, LeapFunctionCall
from .policy import ToolPolicy

if TYPE_CHECKING:
    from ..functions.declaration import LeapFunction
    from ..runner.conversation import Conversation


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
