"""``leap redact``."""

from __future__ import annotations

import json
from typing import Any

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..options.tasks import take_task, task_flags

LISTED = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 80},
    "maxItems": 20,
}
CATEGORIES = "address,company_name,email_address,human_name,phone_number"


@leap_command("redact")
@task_flags
@click.option(
    "--categories",
    default=CATEGORIES,
    metavar="A,B",
    help=f"Mask these kinds of data; by default {', '.join(CATEGORIES.split(','))}.",
)
@click.option("--map", "map_file", metavar="FILE", help="Write what each mask stands for to this JSON file.")
@click.option("--restore", metavar="FILE", help="Take off the masks that this file of --map explains; needs no model.")
@click.pass_obj
def command(env: Environment, /, categories: str, map_file: str | None, restore: str | None, **flags: Any) -> ExitCode:
    """Mask personal data in FILEs, or standard input: the model lists it, and every occurrence is masked. What the
    model does not list stays."""
    from leap_core.tasks.extraction import pieces_that_fit
    from leap_core.tasks.masking import mask, unmask

    from ..answers.tasks import answer_text, fits_in_context

    task, output = take_task("redact", flags, env), Output(env)
    if restore is not None:
        masks = json.loads((env.cwd / restore).read_text(encoding="utf-8"))
        for _, text in task.texts:
            output.text(unmask(text, masks))
        return ExitCode.DONE
    names = sorted({name.strip() for name in categories.split(",") if name.strip()})
    shape = {
        "type": "object",
        "properties": dict.fromkeys(names, LISTED),
        "required": names,
        "additionalProperties": False,
    }
    whole = "\n".join(text for _, text in task.texts)
    with task.opened() as (runner, wording):
        listed = {"categories": ", ".join(f"<{name}>" for name in names)}
        options = wording.generation_options(json_schema_constraint=json.dumps(shape), inject_schema_into_prompt=False)
        entities: dict[str, list[str]] = {name: [] for name in names}

        def messages(text: str) -> list[Any]:
            return wording.messages({**listed, "text": text})

        for piece in pieces_that_fit(whole, lambda piece: fits_in_context(runner, messages(piece))):
            if task.dry_run:
                task.show(runner, messages(piece), options)
                continue
            for name, items in json.loads(answer_text(runner, messages(piece), options)).items():
                entities[name] += [item for item in items if item.strip() and item not in entities[name]]
    if task.dry_run:
        return ExitCode.DONE
    masked, masks = mask(whole, entities)
    if map_file is not None:
        (env.cwd / map_file).write_text(json.dumps(masks, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    output.text(masked if masked.endswith("\n") else masked + "\n")
    return ExitCode.DONE
