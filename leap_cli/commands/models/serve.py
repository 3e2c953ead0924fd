"""``leap serve``: models for other programs, in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.option_groups import Arguments, OptionGroup
from ...framework.options import option
from ...framework.output import Output
from ...framework.web_browser import page_opener
from ...options.loading import HOST_LOADING, HostLoading
from ...options.opening import naming_the_default
from ...options.served_page import PAGE, ServedPage
from .served_model_options import SERVED_MODELS, ServedModels

if TYPE_CHECKING:
    from leap_core.host.server.process.foreground import ServerSettings


def _settings(arguments: Arguments) -> ServerSettings:
    from jobs.client.served_answers import ServedAnswers
    from jobs.client.served_batches import ServedBatches
    from leap_core.host.server.process.foreground import ServerSettings
    from leap_core.host.server.protocols.kept_responses import durable_responses
    from leap_core.media.fetching import UrlAccess

    env = arguments.env
    key = _read_key(env, arguments["api_key"], arguments["api_key_file"])
    return ServerSettings(
        arguments["address"],
        arguments["port"],
        key,
        most_connections=arguments["max_connections"],
        urls=UrlAccess[arguments["media_urls"].upper()],
        batches=ServedBatches(env.variables),
        answers=ServedAnswers(env.variables),
        files=env.directories.data / "served",
        responses=durable_responses(env.directories.data / "served" / "responses", key),
        log_requests=arguments["log_requests"],
        run=env.directories.run,
    )


SERVER = OptionGroup(
    "settings",
    "",
    (
        option(
            "--port",
            type=click.IntRange(0, 65535),
            default=8080,
            show_default=True,
            help="Listen on this port; 0 takes any that is free.",
        ),
        option(
            "--address",
            default="127.0.0.1",
            show_default=True,
            help="Listen on this address; any but this machine's own needs --api-key.",
        ),
        option(
            "--api-key",
            metavar="KEY",
            help="Demand this key of clients; $LEAP_API_KEY by default. Other users see it in ps.",
        ),
        option("--api-key-file", metavar="FILE", help="Read the key from the first line of this file."),
        option(
            "--media-urls",
            type=click.Choice(["data", "files", "web"]),
            default="data",
            show_default=True,
            help="Take pictures from data: URLs alone, from files of this machine too, or from the web and no files.",
        ),
        option(
            "--max-connections",
            type=click.IntRange(1),
            metavar="N",
            help="Keep at most this many connections open; 1000 by default.",
        ),
        option("--log-requests", is_flag=True, help="Write a line to stderr for every request, without its content."),
    ),
    _settings,
)


@leap_command("serve")
@SERVED_MODELS
@SERVER
@PAGE
@HOST_LOADING
@click.pass_obj
def command(
    env: Environment, /, models: ServedModels, settings: ServerSettings, page: ServedPage, loading: HostLoading
) -> None:
    """Serve models to other programs over OpenAI's, Anthropic's and Ollama's protocols.

    MODELs are loaded at the start and stay. Without any, every installed model is offered: one is loaded when it is
    first asked for, and those that were used longest ago make room.

    Prints the base URL when it listens; /health answers 200 when the models are loaded. It runs until Ctrl-C.
    """
    from dataclasses import replace

    from leap_core.host.server.process.foreground import serve

    output, services = Output(env), page.services(env, settings.api_key)

    def tell(names: list[str]) -> None:
        ready = [f"{', '.join(names)} ready"] if names else []
        offered = ["models are loaded when they are first asked for"] if models.patterns else []
        output.note(f"{', '.join([*ready, *offered])}; Ctrl-C ends it")

    def listening(url: str) -> None:
        output.text(f"{url}\n")
        if services is not None:
            own = services.key is not None and settings.api_key is None
            address = url.removesuffix("v1") + (f"#key={services.key}" if own else "")
            output.text(f"{address}\n")
            if settings.api_key is not None:
                output.note("the page asks for the API key")
            if page.opens:
                open_page(address)

    settings = replace(settings, offer=models.offer(env, loading.request), bounds=models.bounds, page=services)
    with naming_the_default(env, None if models.default is not None else ""), page_opener(env) as open_page:
        serve(
            models.staying,
            settings,
            cwd=env.cwd,
            on_listening=listening,
            on_ready=tell,
            **loading.request,
        )


def _read_key(env: Environment, given: str | None, file: str | None) -> str | None:
    """The key from the option, the file or the variable, whichever there is."""
    if given is not None and file is not None:
        raise click.UsageError("--api-key and --api-key-file cannot be combined")
    key = given if given is not None else env.variables.get("LEAP_API_KEY") or None
    if file is not None:
        try:
            with open(env.cwd / file, encoding="ascii", errors="replace") as stream:
                key = stream.readline()
        except OSError as error:
            raise click.UsageError(f"cannot read {file}: {error.strerror}") from None
    if key is None:
        return None
    key = key.strip()
    if not (key and key.isascii() and key.isprintable()):
        raise click.UsageError("the API key must be printable ASCII, and not empty")
    return key
