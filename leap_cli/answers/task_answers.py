"""Doing a task to one input after the other, here or as a job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import click

from leap_core.conversation.responses import Complete, GenerationFinishReason
from leap_core.conversation.streams import last_of
from leap_core.errors import LeapError, LeapGenerationError, LeapUnavailableError, LeapUnsupportedMediaError

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.interrupts import stopping_on_interrupt
from ..framework.output import Output
from ..options.background import open_jobs, print_id
from ..options.loading import default_model, load_model, model_to_pin, naming_the_default, note_builtin
from ..options.tasks import TaskInput, TaskSettings, own_recipes
from .file import writing_to

if TYPE_CHECKING:
    from leap_core.conversation.messages import ChatMessage
    from leap_core.conversation.options import GenerationOptions
    from leap_core.conversation.runner import ModelRunner
    from leap_core.tasks.task import RecipeTask

Write = Callable[[Output, TaskInput, str, dict[str, Any]], None]


def write_line(output: Output, _each: TaskInput, text: str, _details: dict[str, Any]) -> None:
    """Print an answer on lines of its own."""
    output.text(f"{text}\n")


def do_task(
    task: RecipeTask,
    inputs: Sequence[TaskInput],
    settings: TaskSettings,
    env: Environment,
    *,
    write: Write = write_line,
    streams: bool = False,
) -> ExitCode:
    """Do the task to each input, or have a job do it. ``write`` prints the answer to one and what else is known.
    ``streams``: answers are printed as they come instead. An input that fails is named and kept with ``--errors``, and
    the exit code is JOB then."""
    if settings.background:
        return submit_task(task, inputs, settings, env)
    if not inputs:
        Output(env).note("there are no new files")
        return ExitCode.DONE
    if all(each.problem and each.scan is None for each in inputs):
        with _errors_file(settings.errors, env) as errors:
            leave_out(inputs, env, errors)
        return ExitCode.JOB
    count, sources = len(inputs), {each.source for each in inputs}
    with (
        _errors_file(settings.errors, env) as errors,
        writing_to(settings.target, env) as place,
        load_model(env, settings.model) as runner,
    ):
        output = Output(place)
        inputs = leave_out(written_down(inputs, runner, env), env, errors)
        if not inputs:
            return ExitCode.JOB
        failed = count - len(inputs)
        sources &= {each.source for each in inputs}
        if settings.dry_run:
            _show_prompts(task, inputs, settings, runner, output)
            return ExitCode.JOB if failed else ExitCode.DONE
        note_builtin(env, settings.model.name, output)
        _begin(task, inputs, runner, output)
        for each in inputs:
            doing = _Doing(task, settings, runner, output, streams=streams)
            try:
                doing.answer(each, write)
            except LeapUnavailableError:
                raise
            except LeapError as error:
                if each is inputs[0] and _can_answer_none(error, inputs):
                    raise
                failed += 1
                sources.discard(each.source)
                doing.end_line()
                output.warning(f"{each.name}: {error.message}")
                if errors is not None:
                    errors.write(_failure(each, error))
                    errors.flush()
    if settings.new_files is not None:
        settings.new_files.add(sources - {""})
    if failed and count > 1:
        output.note(f"{failed} of {count} failed")
    return ExitCode.JOB if failed else ExitCode.DONE


def _begin(task: RecipeTask, inputs: Sequence[TaskInput], runner: ModelRunner, output: Output) -> None:
    """What comes before the first answer."""
    caution = task.task.caution(task.model(runner, inputs[0].message, _no_asking))
    if caution is not None:
        output.warning(caution)
    if task.task.header is not None:
        output.text(f"{task.task.header}\n")


def _can_answer_none(error: LeapError, inputs: Sequence[TaskInput]) -> bool:
    return isinstance(error, LeapUnsupportedMediaError) and all(each.picture for each in inputs)


def written_down(inputs: Sequence[TaskInput], runner: ModelRunner, env: Environment) -> list[TaskInput]:
    """The inputs with the texts of pages that are pictures, where the model sees; else as they are, and those of which
    nothing can be read with a problem that names installed models that see."""
    from leap_core.conversation.messages import ChatMessage
    from leap_core.conversation.page_pictures import left_out
    from leap_core.documents.blocks import UnreadableDocumentError
    from leap_core.documents.reading import check_has_text
    from leap_core.documents.scans import read_scans

    output, done = Output(env), []
    for each in inputs:
        if each.scan is None:
            done.append(each)
            continue
        name = each.name

        def tell(page: int, pages: int, name: str = name) -> None:
            output.progress(f"{name}: page {page} of {pages}")

        try:
            document = read_scans(each.scan, runner, on_page=tell)
            check_has_text(document, name)
            done.append(replace(each, message=ChatMessage("user", document.text.rstrip()), problem=None, scan=None))
        except LeapError as error:
            if each.problem is None:
                says = left_out(name, each.scan.blank)
                blind = isinstance(error, LeapUnsupportedMediaError)
                output.warning(says if blind else f"{says}: {error.message}")
                each = replace(each, notes=(*each.notes, says))
            elif isinstance(error, LeapUnsupportedMediaError):
                each = replace(each, problem=UnreadableDocumentError(each.problem.message, hint=_seeing(env)))
            else:
                each = replace(each, problem=error)
            done.append(replace(each, scan=None))
    return done


def _seeing(env: Environment) -> str:
    """What to do where a model does not see."""
    from leap_core.models.store import Store

    installed = [model.name for model in Store.of(env.directories).installed() if model.state == "ready"]
    listed = ", ".join(name for name in installed if SEES.search(name))
    better = "builtin-vl, for a try; `leap download LFM2.5-VL-450M` gets a real one"
    return f"a model that sees reads such pages: -m {listed or better}"


SEES = re.compile(r"(?i)(^|[-_.])vl([-_.]|$)|vision")
"""Names of models that see."""


def leave_out(inputs: Sequence[TaskInput], env: Environment, errors: IO[str] | None = None) -> list[TaskInput]:
    """Name the files that could not be read, and keep them with ``--errors``; the inputs that are left."""
    for each in inputs:
        if each.problem is not None:
            hint = f" ({each.problem.hint})" if each.problem.hint else ""
            Output(env).warning(f"{each.problem.message}{hint}")
            if errors is not None:
                errors.write(_failure(each, each.problem))
    return [each for each in inputs if each.problem is None]


class _Doing:
    """One input's work: its prompts are asked, and what comes is shown."""

    def __init__(
        self, task: RecipeTask, settings: TaskSettings, runner: ModelRunner, output: Output, *, streams: bool
    ) -> None:
        self._task, self._settings, self._runner, self._output = task, settings, runner, output
        self._streams = streams
        self._line_open = False

    def answer(self, each: TaskInput, write: Write) -> None:
        """Do it. Raises LeapError; KeyboardInterrupt after Ctrl-C."""
        tell = self._output.note if self._settings.model.verbose else self._output.progress
        reply = self._task.complete(
            self._runner,
            each.message,
            self._ask,
            name=each.name,
            overrides=self._settings.overrides,
            tell=lambda line: tell(f"{each.name}: {line}"),
            emit=self._emit if self._streams else None,
        )
        if self._streams:
            self._output.text("\n")
            self._line_open = False
        else:
            details = reply.details or {}
            text = reply.full_message.text
            if each.notes:
                details = {**details, "notes": list(each.notes)}
                if getattr(self._task.task, "format", None) == "json":
                    text = json.dumps({**json.loads(text), "notes": details["notes"]}, ensure_ascii=False)
            write(self._output, each, text, details)
            if details.get("unasked"):
                raise LeapGenerationError("personal data that only the model would find may be left in the text")
        for warning in reply.warnings:
            self._output.warning(f"{each.name}: {warning}")
        if reply.finish_reason is GenerationFinishReason.MAX_TOKENS:
            self._output.warning(f"{each.name}: an answer of the model was cut at --max-tokens")
        elif reply.finish_reason is GenerationFinishReason.EXCEED_CONTEXT:
            self._output.warning(f"{each.name}: an answer of the model was cut where its context is full")

    def end_line(self) -> None:
        """End a line of which a part is printed."""
        if self._line_open:
            self._output.text("\n")

    def _emit(self, piece: str) -> None:
        self._line_open = True
        self._output.text(piece)

    def _ask(
        self,
        messages: Sequence[ChatMessage],
        options: GenerationOptions,
        on_text: Callable[[str], object] | None = None,
    ) -> Complete:
        generation = self._runner.start(messages, (), options)
        with stopping_on_interrupt(generation.stop):
            complete = last_of(generation, on_text)
        if complete.finish_reason is GenerationFinishReason.INTERRUPTED:
            self.end_line()
            raise KeyboardInterrupt
        return complete


def _show_prompts(
    task: RecipeTask, inputs: Sequence[TaskInput], settings: TaskSettings, runner: ModelRunner, output: Output
) -> None:
    """Print the prompts as the model would get them; how tokens would be chosen goes to stderr."""
    for each in inputs:
        model = task.model(runner, each.message, _no_asking, overrides=settings.overrides)
        count = 0
        for messages, options in task.task.prompts(model, each.message):
            count += 1
            output.text(runner.render(messages, (), options).text + "\n")
        fields = {
            name: value for name, value in model.options().to_json().items() if name != "inject_schema_into_prompt"
        }
        sampling = ", ".join(f"{name} {value}" for name, value in fields.items()) or "as the model's card says"
        prompts = "1 prompt" if count == 1 else f"{count} prompts"
        if count > 1 and task.task.name == "summarize":
            prompts += ", and then those of their summaries"
        output.note(f"{each.name}: {prompts}; recipe {task.recipe.name} for {model.wording.models[0]}; {sampling}")


def _no_asking(*_: object) -> Complete:
    raise AssertionError("a dry run asks nothing")


@contextmanager
def _errors_file(name: str | None, env: Environment) -> Iterator[IO[str] | None]:
    if name is None:
        yield None
        return
    try:
        file = (env.cwd / name).open("w", encoding="utf-8")
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--errors {name}: {getattr(error, 'strerror', None) or error}") from None
    with file:
        yield file


def _failure(each: TaskInput, error: LeapError) -> str:
    text = {"text": each.message.text} if each.picture is None else {"image": each.picture}
    text = text if each.problem is None else {}
    return json.dumps({"source": each.name, "error": error.message, **text}, ensure_ascii=False) + "\n"


AT_ONCE = 4
"""Inputs of a job at once: texts are long, and each takes a context."""


def submit_task(
    task: RecipeTask, inputs: Sequence[TaskInput], wish: TaskSettings, env: Environment, *, form: str = "text"
) -> ExitCode:
    """Queue the task and print the job's id. The answers go to ``--output``, or are kept with the job for ``leap jobs
    output``. ``form``: the format of the batch's results. Files that cannot be read are named and left out, and the
    exit code is JOB then."""
    from leap_core.batch.settings import KEPT, BatchSettings
    from leap_core.conversation.page_pictures import left_out

    output = Output(env)
    if wish.background.repeats_command(env) or wish.new_files is not None:
        return wish.background.submit(env, output, model_to_pin(env, wish.model, wish.background, output))
    readable = leave_out(inputs, env)
    if not readable:
        return ExitCode.JOB
    failed, inputs = len(inputs) - len(readable), readable
    for each in inputs:
        if each.scan is not None:
            output.warning(left_out(each.name, each.scan.blank))
    settings = BatchSettings.of(
        source="-",
        output=KEPT if wish.target is None else str(env.cwd / wish.target),
        model=wish.model.name,
        options=wish.overrides.to_json(),
        loading=dict(wish.model.fields),
        format=form,
        concurrency=min(AT_ONCE, len(inputs)),
        errors=None if wish.errors is None else str(env.cwd / wish.errors),
        directory=str(env.cwd),
        recipes=own_recipes(env, task.recipe.name),
        header=task.task.header,
    )
    with naming_the_default(env, wish.model.name), open_jobs(env) as jobs:
        id = jobs.batch(
            settings,
            rows=(_line(task, each, env) for each in inputs),
            default_model=default_model(env, wish.model.name),
            host=wish.model.job_may_use_host,
            policy=wish.background.policy,
            cwd=env.cwd,
            label=f"{task.recipe.name} {inputs[0].name}" + (f" and {len(inputs) - 1} more" if len(inputs) > 1 else ""),
        )
    note_builtin(env, wish.model.name, output)
    print_id(output, id)
    return ExitCode.JOB if failed else ExitCode.DONE


def _line(task: RecipeTask, each: TaskInput, env: Environment) -> bytes:
    line: dict[str, Any] = {"custom_id": each.name, **task.task.to_json()}
    if each.picture is not None:
        line["image"] = str(env.cwd / each.picture)
    else:
        line["text"] = each.message.text
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"
