"""``leap talk``: a conversation by voice."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.interrupts import leaving_on_termination
from ...framework.output import Output
from ...options.conversation import TALK, SessionChoice, TalkOptions, session_group, session_model
from ...options.loading import MODEL_BESIDE_SOUND, ModelChoice, load_model, note_builtin
from ...options.sampling import SPOKEN_SAMPLING, Sampling

if TYPE_CHECKING:
    from leap_core.conversation.runner import ModelRunner


@leap_command("talk")
@TALK
@SPOKEN_SAMPLING
@session_group(saves=True)
@MODEL_BESIDE_SOUND
def command(
    env: Environment, /, talking: TalkOptions, sampling: Sampling, session: SessionChoice, model: ModelChoice
) -> None:
    """Voice chat through microphone and loudspeaker. Needs a model with audio input and output, and leap-edge[play].

    Speak, and the model answers when you pause; speak again to interrupt it. In a terminal you can also type messages
    and the commands of leap chat; Ctrl-C stops an answer, Ctrl-D exits.
    """
    from ...talk.talk_session import TalkSession, check_model, list_devices

    output = Output(env)
    if talking.devices:
        list_devices(output)
        return
    options = sampling.options()
    with leaving_on_termination(), closing(TalkSession(env, talking)) as held, session.open(env) as recorder:
        model = session_model(recorder, env, model)

        def load(name: str | None) -> ModelRunner:
            return load_model(env, replace(model, name=name), slots=1 if talking.voice is None else 2)

        with load(model.name) as runner:
            check_model(runner)
            note_builtin(env, model.name, output)
            held.hold(recorder, runner, options, load)
