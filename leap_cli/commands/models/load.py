"""``leap load``: keep a model warm in a background process."""

from __future__ import annotations

import click

from ...completion.value_types import ModelName
from ...framework.click_classes import leap_command
from ...framework.durations import Duration, in_words, seconds_of
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...framework.output_format import format_choice
from ...options.loading import HOST_LOADING, HostLoading
from ...options.opening import model_reference, naming_the_default


@leap_command("load")
@click.argument("model", required=False, type=ModelName())
@click.option(
    "--keep-alive", type=Duration(), metavar="TIME", help="Unload the model after this time without use; 0 is never."
)
@HOST_LOADING
@format_choice("Print the model as leap ps does: text, one json document, jsonl, or quiet: its name only.")
@click.pass_obj
def command(
    env: Environment, /, model: str | None, keep_alive: float | None, format: str, loading: HostLoading
) -> None:
    """Keep MODEL warm in a background process, which generate, chat, search and jobs then use without being told.

    It returns when the model is ready. Loading a loaded model restarts its keep-alive timer. Without MODEL the default
    model is loaded. The model goes after --keep-alive without use (10m by default, or keep_alive in config.toml), or
    with leap unload; with the last model the process ends.
    """
    from leap_core.host.client.lookup import keep_warm

    reference = model_reference(env, model or None)
    output = Output(env, format)
    with naming_the_default(env, model):
        _host, held = keep_warm(
            reference,
            variables=env.variables,
            cwd=env.cwd,
            on_progress=lambda seconds: output.progress(f"loading {reference} … {seconds:.0f} s"),
            keep_alive=_configured_keep_alive(env) if keep_alive is None else keep_alive,
            **loading.request,
        )
    if output.format is not Format.TEXT:
        output.record({key: value for key, value in held.items() if key not in ("key", "wish")}, name="model")
        return
    output.text(f"{held['model']}\n")
    stays = f"for {in_words(held['keep_alive'])} after its last use" if held["keep_alive"] else "until `leap unload`"
    output.note(f"{held['model']} is warm and stays {stays}")


def _configured_keep_alive(env: Environment) -> float | None:
    from leap_core.configuration import read_configuration

    text = read_configuration(env.directories.config_file).keep_alive
    try:
        return None if text is None else seconds_of(text)
    except ValueError as error:
        raise click.UsageError(f"{env.directories.config_file}: keep_alive: {error}") from None
