"""Types of the values that commands take: names of models and jobs, each with its completion."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..framework.arguments import FileName
from ..framework.environment import Environment

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class ModelName(FileName):
    """A reference to a model. Completes what is installed, then the catalogue's names; files too."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from .candidates import fitting, models

        return fitting(models(ctx, incomplete), incomplete)


class InstalledModelName(FileName):
    """The name of an installed model: its directory's."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from .candidates import fitting, installed_models

        return fitting(installed_models(ctx, incomplete), incomplete)


class WarmModel(FileName):
    """The name of a model that is kept warm, which is what it completes."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            from leap_core.protocols.host.model_host import ModelHost

            host = ModelHost.running(ctx.ensure_object(Environment).variables)
            names = [] if host is None else [model["model"] for model in host.status(timeout=0.5)["models"]]
        except Exception:  # nothing may be printed while the shell completes
            return []
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


class JobId(click.ParamType[str]):
    """An id, or its beginning. Completes ids of jobs in one of ``states``."""

    name = "job"

    def __init__(self, *states: str) -> None:
        self._states = states

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from .candidates import fitting, jobs

        return fitting(jobs(*self._states)(ctx, incomplete), incomplete)


class CommaList(click.ParamType[list[Any]]):
    """Values between commas, each of ``kind``."""

    name = "list"

    def __init__(self, kind: Callable[[str], Any]) -> None:
        self._kind = kind

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        if isinstance(value, list):
            return value
        try:
            return [self._kind(each.strip()) for each in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers between commas, such as 3,1", param, ctx)


class GpuLayers(click.ParamType[int | str]):
    """Layers on a GPU: a number, -1 for all, or ``auto`` for as many as fit."""

    name = "layers"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value).strip().lower()
        if text == "auto":
            return text
        if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,6}", text) or int(text) < -1:
            self.fail(f"{value!r} is neither a number of layers, -1 for all, nor auto", param, ctx)
        return int(text)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        meanings = {"auto": "as many as fit", "-1": "all", "0": "none"}
        from click.shell_completion import CompletionItem

        return [CompletionItem(each, help=help) for each, help in meanings.items() if each.startswith(incomplete)]
