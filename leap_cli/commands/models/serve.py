"""``leap serve``: models for other programs, in the foreground."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass
from leap_core.system.features import loaded_plugins

from ...completion.value_types import ModelName
from ...framework.arguments import reading
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.option_groups import Arguments, OptionGroup, own_groups
from ...framework.options import Duration, Size, option
from ...framework.output import Output, page_opener
from ...options.first_use import have_here
from ...options.loading import HOST_LOADING, HostLoading, configured_keep_alive, model_reference, naming_the_default

if TYPE_CHECKING:
    from leap_core.server.foreground import ServerSettings
    from leap_core.server.models.abilities import Offer
    from leap_core.server.models.loaded_models import Bounds

FEATURES = {"web UI": "leap_cli.options.web_ui:PAGE"}
SHORTEST_PING, LONGEST_PING = 0.1, 3600.0
FOR_ONE = {"adapters": "--lora", "mm_proj_path": "--mmproj"}
"""Options of loading that fit a single model."""


@dataclass(frozen=True)
class ServedModels:
    """``staying``: loaded at the start, for good. ``patterns``: loaded on demand; empty where none is. ``default``: the
    one that answers where a request names none. ``keep_alive``: seconds that those stay without use."""

    staying: tuple[str, ...]
    patterns: tuple[str, ...]
    default: str | None
    bounds: Bounds
    keep_alive: float | None

    def offer(self, env: Environment, loading: Mapping[str, Any]) -> Offer | None:
        """What requests may have loaded, each in the way that ``loading`` says; None where nothing is offered."""
        from leap_core.server.models.abilities import Offer

        if not self.patterns:
            return None
        for name, spelling in FOR_ONE.items():
            if name in loading.get("details", {}):
                raise click.UsageError(
                    f"{spelling} belongs to one model: name that as MODEL, without --models or --pin"
                )
        return Offer(self.patterns, env.cwd, self.default, {**loading, "keep_alive": self.keep_alive})


def _served_models(arguments: Arguments) -> ServedModels:
    from leap_core.server.models.loaded_models import Bounds

    env, listed = arguments.env, arguments["offered"]
    named = (*arguments["models"], *arguments["named"])
    patterns = tuple(part.strip() for part in (listed or "").split(",") if part.strip())
    if listed is not None and not patterns:
        raise click.UsageError("--models needs names or patterns, such as 'LFM2.5*'")
    default = None
    if not named and not patterns:
        default = model_reference(env, None)
        patterns = ("*", default)
    keep_alive = arguments["keep_alive"]
    if keep_alive is None:
        keep_alive = configured_keep_alive(env)
    staying = tuple(dict.fromkeys((*named, *arguments["pin"])))
    if arguments["max_models"] is not None and arguments["max_models"] < len(staying) + bool(patterns):
        more = " and room for one more" if patterns else ""
        raise click.UsageError(
            f"--option max-models={arguments['max_models']} is less than the {len(staying)} that stay{more}"
        )
    return ServedModels(
        staying, patterns, default, Bounds(arguments["max_models"], arguments["max_memory"]), keep_alive
    )


SERVED_MODELS = OptionGroup(
    "models",
    "Models on demand",
    (
        click.argument("models", metavar="[MODEL]...", nargs=-1, type=ModelName()),
        option("-m", "--model", "named", type=ModelName(), multiple=True, help="Model to serve; the same as MODEL."),
        option(
            "--models",
            "offered",
            metavar="NAMES",
            help="Also offer these models and load them on first use: 'NAME,PATTERN', such as 'LFM2.5*'.",
        ),
        option("--pin", type=ModelName(), multiple=True, help="Load this model at startup and never unload it."),
        option(
            "--max-models",
            type=click.IntRange(1),
            help="Load at most N models at once; by default 2 besides the pinned ones.",
        ),
        option(
            "--max-memory", type=Size(), help="Limit the memory of loaded models, GPU memory included, such as 8GB."
        ),
        option(
            "--keep-alive",
            type=Duration(),
            help="Unload a model loaded on demand after this idle time (10m); 0 is never.",
        ),
    ),
    _served_models,
)


class PingInterval(click.FloatRange):
    """Seconds without data until a stream sends a keep-alive; 0 for never."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        if not (seconds == 0 or seconds >= SHORTEST_PING):  # nan is neither
            self.fail(f"{value} is neither 0 nor at least {SHORTEST_PING}", param, ctx)
        return seconds


def _settings(arguments: Arguments) -> ServerSettings:
    from jobs.client.server_jobs import ServedJobs
    from leap_core.conversation.media.fetching import UrlAccess
    from leap_core.server.endpoints.responses import durable_responses
    from leap_core.server.foreground import ServerSettings

    env = arguments.env
    key = _read_key(env, arguments["api_key"], arguments["api_key_file"])
    return ServerSettings(
        arguments["address"],
        arguments["port"],
        key,
        most_connections=arguments["max_connections"],
        urls=UrlAccess[arguments["media_urls"].upper()],
        jobs=ServedJobs(env.variables),
        files=env.directories.data / "served",
        responses=durable_responses(env.directories.data / "served" / "responses", key),
        log_requests=arguments["log_requests"],
        run=env.directories.run,
        host_names=arguments["allow_host"],
        ping_interval=arguments["sse_ping_interval"],
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
            help="Port to listen on; 0 takes any free one.",
        ),
        option(
            "--address",
            default="127.0.0.1",
            show_default=True,
            help="Address to listen on; other than loopback needs --api-key.",
        ),
        option(
            "--allow-host",
            multiple=True,
            metavar="NAME",
            help="Accept this Host name too; localhost and host.docker.internal are always accepted.",
        ),
        option(
            "--api-key",
            metavar="KEY",
            help="API key that clients must send; $LEAP_API_KEY by default. Other users see it in ps.",
        ),
        option("--api-key-file", metavar="FILE", help="Read the key from the first line of this file."),
        option(
            "--media-urls",
            type=click.Choice(["data", "files", "web"]),
            default="data",
            show_default=True,
            help="Sources of images: data: URLs only, also local files, or also the web (no files).",
        ),
        option(
            "--max-connections",
            type=click.IntRange(1),
            help="Keep at most this many connections open; 1000 by default.",
        ),
        option(
            "--sse-ping-interval",
            type=PingInterval(0, LONGEST_PING),
            default=1.0,
            show_default=True,
            metavar="SECONDS",
            help="Send a keep-alive comment after this time without data in a stream, from 0.1 to 3600; 0 is never.",
        ),
        option("--log-requests", is_flag=True, help="Log each request to stderr, without its content."),
    ),
    _settings,
)


@leap_command("serve")
@SERVED_MODELS
@SERVER
@own_groups(FEATURES)
@HOST_LOADING
def command(
    env: Environment, /, models: ServedModels, settings: ServerSettings, loading: HostLoading, page: Any = None
) -> None:
    """Serve models to other programs over OpenAI-, Anthropic- and Ollama-compatible APIs.

    MODELs are loaded at startup and stay loaded. Without any, every installed model is offered: each is loaded on first
    use, and the least recently used are unloaded.

    Prints the base URL when it listens; /health answers 200 when the models are loaded. It runs until Ctrl-C.
    """
    from dataclasses import replace

    from leap_core.inference.llama.library import use_engine
    from leap_core.server.foreground import serve

    use_engine(loading.engine)
    output = Output(env)
    web_page = None if page is None else page.web_page(env, settings.api_key)

    def tell(names: list[str]) -> None:
        ready = [f"{', '.join(names)} ready"] if names else []
        offered = ["models are loaded when they are first asked for"] if models.patterns else []
        output.note(f"{', '.join([*ready, *offered])}; Ctrl-C ends it")

    def listening(url: str) -> None:
        output.text(f"{url}\n")
        if web_page is not None:
            own = web_page.key is not None and settings.api_key is None
            address = url.removesuffix("v1") + (f"#key={web_page.key}" if own else "")
            output.text(f"{address}\n")
            if settings.api_key is not None:
                output.note("the page asks for the API key")
            if page.opens:
                open_page(address)

    settings = replace(
        settings,
        offer=models.offer(env, loading.request),
        bounds=models.bounds,
        page=web_page,
        more_routes=loaded_plugins("leap.routes", env.directories, output.warning),
    )
    with naming_the_default(env, None if models.default is not None else ""), page_opener(env) as open_page:
        for reference in models.staying:
            have_here(env, reference)
        serve(models.staying, settings, cwd=env.cwd, on_listening=listening, on_ready=tell, **loading.request)


def _read_key(env: Environment, given: str | None, file: str | None) -> str | None:
    """The key from the option, the file or the variable, whichever there is."""
    if given is not None and file is not None:
        raise click.UsageError("--api-key and --api-key-file cannot be combined")
    key = given if given is not None else env.variables.get("LEAP_API_KEY") or None
    if file is not None:
        with reading(file), open(env.cwd / file, encoding="ascii", errors="replace") as stream:
            key = stream.readline()
    if key is None:
        return None
    key = key.strip()
    if not (key and key.isascii() and key.isprintable()):
        raise click.UsageError("the API key must be printable ASCII, and not empty")
    return key
