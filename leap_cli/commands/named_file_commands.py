"""The verbs that every kind of named files has: list, edit and remove. Its own command adds what else there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..config.saved import NamedFiles, edit_file
from ..exit_codes import ExitCode
from ..framework.click_classes import LeapGroup, format_option
from ..framework.environment import Environment
from ..framework.error_boundary import outcome_or_warning
from ..framework.output import Format, Output


@dataclass(frozen=True)
class FileVerbs:
    """``describe``: the record of a file with this name and path. ``check``: a text under this name, written to a file;
    both raise UsageError or LeapError for what cannot be used. ``columns``: of the table. ``shipped``: leap's own files
    by name; the user's of the same name stand in their place."""

    files: NamedFiles
    describe: Callable[[Environment, str, Path], Mapping[str, Any]]
    check: Callable[[Environment, str, str, Path], object]
    columns: Sequence[str]
    shipped: Callable[[], Mapping[str, Path]] = dict

    def find(self, env: Environment, name: str) -> Path:
        """The user's file of this name, else leap's own. Raises UsageError where there is none."""
        return self.files.find(env, name) or self.shipped().get(name) or self.files.existing(env, name)


def add_file_verbs(group: LeapGroup, verbs: FileVerbs) -> None:
    """Give a group of commands the verbs."""
    files, kind = verbs.files, verbs.files.kind

    @group.command("list", help=f"List the {kind}s there are.")
    @format_option("names")
    @click.pass_obj
    def list_files(env: Environment, /, format: str) -> ExitCode:
        output = Output(env, format)
        paths = {**verbs.shipped(), **{name: files.path(env, name) for name in files.names(env)}}
        records = (outcome_or_warning(output, partial(verbs.describe, env, *each)) for each in sorted(paths.items()))
        output.records([each for each in records if each is not None], verbs.columns, name="name")
        if not paths and output.format is Format.TEXT:
            output.note(f"no {kind} is saved; leap {files.directory} add saves one")
        return ExitCode.DONE

    taken = f"What you write is taken only when it is a {kind}."

    @group.command("edit", help=f"Open a {kind} in $VISUAL, else $EDITOR. {taken}")
    @click.argument("name")
    @click.pass_obj
    def edit(env: Environment, /, name: str) -> ExitCode:
        before, target = verbs.find(env, name), files.path(env, name)

        def check(text: str, draft: str) -> None:
            verbs.check(env, name, text, Path(draft))

        changed = edit_file(env, target, check, beginning=before.read_text("utf-8", "replace"))
        Output(env).note(f"saved {target}" if changed else "nothing was changed")
        return ExitCode.DONE

    @group.command("remove", help=f"Forget a {kind}.")
    @click.argument("name")
    @click.pass_obj
    def remove(env: Environment, /, name: str) -> ExitCode:
        path = verbs.find(env, name)
        if path != files.path(env, name):
            raise click.UsageError(f"the {kind} {name} is leap's own; there is none of yours to remove")
        path.unlink()
        return ExitCode.DONE
