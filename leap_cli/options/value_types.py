"""What the commands about models share: completion of models' names, and sizes for people."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


class ModelName(click.ParamType[str]):
    """A reference to a model. Completes what is installed, then the catalogue's names; files too."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from ..completion.candidates import fitting, models

        return fitting(models(ctx, incomplete), incomplete)


class InstalledModelName(click.ParamType[str]):
    """The name of an installed model: its directory's."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from ..completion.candidates import fitting, installed_models

        return fitting(installed_models(ctx, incomplete), incomplete)


def in_bytes(count: int) -> str:
    """``1.2 GB``: powers of 1000, as hubs count."""
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"
