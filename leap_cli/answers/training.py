"""``leap export --for-training``: which conversations, in the model's form, into one file or two."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_core.errors import LeapSessionError

from ..framework.environment import Environment
from ..framework.output import Output
from ..options.tools import configured_tools
from ..options.training import Training
from .file import writing_to

if TYPE_CHECKING:
    from leap_core.functions import LeapFunction
    from leap_core.messages import ChatMessage
    from leap_core.training.conversations import TrainingConversation
    from leap_core.training.rendering import TrainingTemplate

Reading = Callable[[], "TrainingConversation"]


def write_training_data(
    env: Environment, training: Training, histories: Sequence[Sequence[ChatMessage]] | None, output: str | None
) -> None:
    """Write those that can be trained on, and note how many were left out, and why. ``histories``: None is every
    session."""
    from leap_core.training.redaction import redacted
    from leap_core.training.rendering import UnfitError

    functions = configured_tools(env).functions_of_files(training.tools_files, (), Output(env).warning)
    reasons: Counter[str] = Counter()
    written = [0, 0]
    with ExitStack() as files:
        places = [files.enter_context(writing_to(output, env))]
        if training.test_share is not None:
            places.append(files.enter_context(writing_to(_test_file(str(output)), env)))
        template = _template(env, training.model)
        for read in _readings(env, training, histories, functions):
            try:
                conversation = read()
                history = conversation.history
                if training.redact:
                    history = redacted(history)
                lines = _lines(replace(conversation, history=history), template, rendered=training.rendered)
            except UnfitError as error:
                reasons[str(error)] += 1
                continue
            side = int(training.test_share is not None and conversation.is_test(training.test_share))
            written[side] += 1
            Output(places[side]).text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    whole = f"{sum(written)} conversation{'' if sum(written) == 1 else 's'}"
    Output(env).note(whole if training.test_share is None else f"{whole}, {written[1]} of them for testing")
    for reason, count in reasons.most_common():
        Output(env).note(f"{count} left out: {reason}")


def _readings(
    env: Environment,
    training: Training,
    histories: Sequence[Sequence[ChatMessage]] | None,
    functions: Sequence[LeapFunction],
) -> Iterator[Reading]:
    """What makes each of the conversations, or raises UnfitError."""
    from leap_core.training.conversations import of_entry, of_history

    for history in histories if histories is not None else []:
        yield lambda history=history: of_history(history, functions)  # type: ignore[misc]
    if histories is None and env.directories.sessions_file.exists():
        from leap_core.sessions.store import SessionStore

        with SessionStore(env.directories.sessions_file) as store:
            for session in reversed(store.list()):
                yield lambda id=session.id: of_history(_history(store, id), functions)  # type: ignore[misc]
    if training.log:
        from leap_core.prompt_log.log import PromptLog
        from leap_core.prompt_log.setting import log_file

        if log_file(env.directories).is_file():
            with PromptLog(log_file(env.directories)) as log:
                entries = log.entries()
            for entry in reversed(entries):
                yield lambda entry=entry: of_entry(entry)  # type: ignore[misc]


def _history(store: Any, id: str) -> Sequence[ChatMessage]:
    from leap_core.training.rendering import UnfitError

    try:
        history: Sequence[ChatMessage] = store.history(id)
    except LeapSessionError as error:
        raise UnfitError(error.message) from None
    return history


def _lines(conversation: TrainingConversation, template: TrainingTemplate, *, rendered: bool) -> list[dict[str, Any]]:
    texts = template.rendered(conversation.history, conversation.functions)
    if rendered:
        return [text.to_json() for text in texts]
    return [template.messages(conversation.history, conversation.functions)]


def _template(env: Environment, reference: str) -> TrainingTemplate:
    """That of a model on this machine, which is opened for its vocabulary."""
    from leap_core.llama.model import LlamaModel
    from leap_core.loading import try_local
    from leap_core.models.references.resolving import resolve_local
    from leap_core.options import ModelLoadingOptions
    from leap_core.training.rendering import TrainingTemplate

    local = resolve_local(reference, variables=env.variables, cwd=env.cwd)
    try_local(local, ModelLoadingOptions())
    model = LlamaModel(local.path)
    try:
        return TrainingTemplate.of_model(model, local.chat_template, local.parser_name)
    finally:
        model.close()


def _test_file(output: str) -> str:
    path = Path(output)
    return str(path.with_name(f"{path.stem}.test{path.suffix or '.jsonl'}"))
