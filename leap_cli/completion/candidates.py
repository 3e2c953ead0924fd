"""What a parameter's value may be: models, tools, sessions, jobs, files and so on, found on this disk and nowhere else.

A parameter whose type completes by itself is asked; for the others the name that ``--help`` shows for the value, or the
place decides. A new kind of value is one more line in ``BY_NAME`` or ``BY_PLACE``.

Everything is read without checks and in the quickest way, because it happens between two key presses: a file that is
damaged offers nothing, and the command that uses it will say so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from leap_core.errors import LeapError

from ..framework.click_classes import CommandTable
from ..framework.environment import Environment

Item = CompletionItem[str]
Source = Callable[[click.Context, str], Iterable[Item]]

BUILTINS = {
    "builtin": "the demo model that leap brings along",
    "builtin-vl": "one that recognizes simple figures",
    "builtin-audio": "one that recognizes notes and beeps",
    "builtin-embed": "one that embeds texts",
}
OWN_TOOLS = ("current_time", "calculate", "read_file")


def values_of(parameter: click.Parameter, context: click.Context, prefix: str) -> list[Item]:
    """Values that begin so, in any case, best first."""
    source = _source_of(parameter, context)
    if source is None:
        return list(type(parameter).shell_complete(parameter, context, prefix))
    return fitting(source(context, prefix), prefix)


def fitting(items: Iterable[Item], prefix: str) -> list[Item]:
    """Each item that begins so, once; paths always."""
    unique: dict[str, Item] = {}
    for item in items:
        if item.type != "plain" or item.value.lower().startswith(prefix.lower()):
            unique.setdefault(item.value if item.type == "plain" else item.type, item)
    return list(unique.values())


def models(context: click.Context, prefix: str) -> Iterator[Item]:
    """References to models: those that are here, the built-in one, the catalogue's; after a colon quantizations."""
    env = context.ensure_object(Environment)
    if prefix.startswith((".", "/", "~", "\\")):
        yield CompletionItem("", type="file")
        return
    name, colon, _ = prefix.partition(":")
    if colon:
        for item in _quantizations(env, name):
            yield CompletionItem(f"{name}:{item.value}", help=item.help)
        return
    names = list(_installed(env))
    yield from (CompletionItem(name, help="on this machine") for name in names)
    yield from aliases(context, prefix)
    yield from (CompletionItem(name, help=f"remote: {url}") for name, url in _endpoints(env).items())
    yield from (CompletionItem(name, help=about) for name, about in BUILTINS.items())
    catalogue = {name: entry for name, entry in _catalogue(env).items() if not {"needs", "obstacle"} & entry.keys()}
    yield from (CompletionItem(name, help=str(entry.get("about", ""))) for name, entry in catalogue.items())
    if prefix and not any(name.lower().startswith(prefix.lower()) for name in (*names, *catalogue, *BUILTINS)):
        yield CompletionItem("", type="file")


def endpoints(context: click.Context, _prefix: str) -> Iterator[Item]:
    """The remote models."""
    known = _endpoints(context.ensure_object(Environment))
    return (CompletionItem(name, help=url) for name, url in known.items())


def aliases(context: click.Context, _prefix: str) -> Iterator[Item]:
    """The user's own names for models."""
    names = _aliases(context.ensure_object(Environment))
    return (CompletionItem(name, help=f"alias of {model}") for name, model in names.items())


def installed_models(context: click.Context, _begun: str) -> Iterator[Item]:
    """The directories of the store."""
    return (CompletionItem(name) for name in _installed(context.ensure_object(Environment)))


def quantizations(context: click.Context, _begun: str) -> Iterator[Item]:
    """Those of the model that the command names, or all that leap knows."""
    model = context.params.get("model") or next(iter(context.params.get("models") or ()), None)
    return _quantizations(context.ensure_object(Environment), model if isinstance(model, str) else None)


def tools(context: click.Context, _begun: str) -> Iterator[Item]:
    """leap's own tools, registered commands, and the functions of the files that ``--tools-file`` names."""
    env = context.ensure_object(Environment)
    for file in context.params.get("tools_file") or ():
        yield from (CompletionItem(name, help=str(file)) for name in _tools_of_file(env.cwd / file))
    yield from registered_tools(context, "")
    yield from (CompletionItem(name, help="leap's own") for name in OWN_TOOLS)


def registered_tools(context: click.Context, _begun: str) -> Iterator[Item]:
    """Commands that were added with ``leap tools add``."""
    value = _json(context.ensure_object(Environment).directories.config / "tools.json")
    for name, entry in (value.get("tools") or {}).items():
        yield CompletionItem(name, help=str(entry.get("description", "")))


def templates(context: click.Context, _begun: str) -> Iterator[Item]:
    """Saved prompts."""
    from ..config.saved import TEMPLATES

    return (CompletionItem(name) for name in TEMPLATES.names(context.ensure_object(Environment)))


def saved_schemas(context: click.Context, _prefix: str) -> Iterator[Item]:
    """Schemas that were saved under a name."""
    from ..config.saved import SCHEMAS

    return (CompletionItem(name) for name in SCHEMAS.names(context.ensure_object(Environment)))


def schemas(context: click.Context, prefix: str) -> Iterator[Item]:
    """Saved schemas, then files."""
    yield from saved_schemas(context, prefix)
    yield from files(context, prefix)


def template_variables(context: click.Context, _prefix: str) -> Iterator[Item]:
    """``NAME=`` of each variable of the template that the command names."""
    from ..config.saved import read_template

    name = context.params.get("template")
    if name is not None:
        with suppress(click.UsageError, LeapError):
            template = read_template(context.ensure_object(Environment), name)
            for variable in template.declared:
                default = template.defaults.get(variable)
                yield CompletionItem(f"{variable}=", help="" if default is None else f"{default!r} by default")


def tool_choices(context: click.Context, prefix: str) -> Iterator[Item]:
    """When tools are called."""
    yield CompletionItem("auto", help="the model decides")
    yield CompletionItem("required", help="the model must call one")
    yield CompletionItem("none", help="the model must not call any")
    yield from tools(context, prefix)


def setting_keys(_context: click.Context, prefix: str) -> Iterator[Item]:
    """Keys of the configuration; those of options, of which there are hundreds, only after ``o``."""
    from ..config.settings import GENERAL, option_settings

    for setting in (*GENERAL, *(option_settings() if prefix else ())):
        yield CompletionItem(setting.key, help=setting.meaning)


def setting_values(context: click.Context, prefix: str) -> Iterator[Item]:
    """The values that the setting before may have, as far as they can be listed."""
    from ..config.settings import find

    key = str(context.params.get("key"))
    if key == "default_model" or key.endswith(".model"):
        yield from models(context, prefix)
        return
    try:
        kind = find(key).type
    except click.UsageError:
        return
    choices = kind.choices if isinstance(kind, click.Choice) else ("true", "false") if kind is click.BOOL else ()
    yield from (CompletionItem(str(choice)) for choice in choices)


def jobs(*states: str) -> Source:
    """Ids of the newest jobs in these states, of all when there are none."""

    def source(context: click.Context, _begun: str) -> Iterator[Item]:
        from jobs.configuration import JobsConfiguration
        from jobs.table.recent import newest
        from leap_core.errors import LeapError

        env = context.ensure_object(Environment)
        try:
            place = JobsConfiguration.from_environment(env.variables).table_place
        except LeapError:  # a broken config.toml: the command says so
            place = env.directories.jobs_file
        for job in newest(place, states):
            yield CompletionItem(job.id, help=f"{job.state}: {job.kind} {job.label}")

    return source


def sessions(context: click.Context, _begun: str) -> Iterator[Item]:
    """Names, then ids, of the sessions that were written to last."""
    from leap_core.conversation.sessions import newest

    rows = newest(context.ensure_object(Environment).directories.sessions_file)
    yield from (CompletionItem(session.name, help=session.title) for session in rows if session.name)
    yield from (CompletionItem(session.id, help=session.name or session.title) for session in rows)


def conversations(context: click.Context, prefix: str) -> Iterator[Item]:
    """What can be exported: sessions, and jobs that have answered."""
    yield from sessions(context, prefix)
    for job in jobs("succeeded")(context, prefix):
        if (job.help or "").startswith("succeeded: generate"):
            yield job


def top_commands(context: click.Context, _begun: str) -> Iterator[Item]:
    """The commands of the table, which has their summaries."""
    root = context.find_root().command
    if isinstance(root, CommandTable):
        yield from (CompletionItem(name, help=entry.summary) for name, entry in root.table.items())


def help_topics(context: click.Context, begun: str) -> Iterator[Item]:
    """Guides, then commands."""
    from ..help.topics import topics

    yield from (CompletionItem(topic, help=about) for topic, about in topics().items())
    yield from top_commands(context, begun)


def warm_times(_context: click.Context, _begun: str) -> Iterator[Item]:
    """Usual lengths of time, and none."""
    return iter([CompletionItem("none", help="load it for each command"), *map(CompletionItem, ("10m", "1h", "8h"))])


def files(_context: click.Context, _begun: str) -> Iterator[Item]:
    """Paths: the shell knows best how to complete them."""
    return iter([CompletionItem("", type="file")])


def engines(context: click.Context, _prefix: str) -> Iterator[Item]:
    """Engines that were added, and the default one."""
    yield CompletionItem("default", help="the one that came with leap")
    data = context.ensure_object(Environment).directories.data
    yield from (CompletionItem(record.parent.name) for record in sorted(data.glob("engines/[!.]*/engine.json")))


BY_NAME: dict[str, Source] = {
    "MODEL": models,
    "QUANT": quantizations,
    "FILE": files,
    "FILE|NAME": files,
    "FILE[=SCALE": files,
    "DIR": files,
    "INPUT": files,
    "SCHEMA": schemas,
    "TOOL": tools,
    "TEMPLATE": templates,
    "ENGINE": engines,
    "SESSION": sessions,
    "SESSION|JOB|-": conversations,
}
"""By the value's name in ``--help``: an option's metavar, an argument's name."""

BY_PLACE: dict[str, Source] = {
    "--tool": tools,
    "--allow-tool": tools,
    "--tool-choice": tool_choices,
    "index make PATH": files,
    "models alias NAME": aliases,
    "models endpoints NAME": endpoints,
    "saved templates show NAME": templates,
    "saved templates add NAME": templates,
    "saved templates edit NAME": templates,
    "saved templates remove NAME": templates,
    "saved schemas add NAME": saved_schemas,
    "saved schemas edit NAME": saved_schemas,
    "saved schemas remove NAME": saved_schemas,
    "--save-template": templates,
    "--param": template_variables,
    "tools show NAME": tools,
    "tools check NAME": tools,
    "tools call NAME": tools,
    "tools remove NAME": registered_tools,
    "help TOPIC|COMMAND|WORDS": help_topics,
    "man COMMAND": top_commands,
    "setup TIME|NONE": warm_times,
    "config get KEY": setting_keys,
    "config set KEY": setting_keys,
    "config unset KEY": setting_keys,
    "config set VALUE": setting_values,
}
"""By the option, or by the command and its argument's name; overrides ``BY_NAME``."""


def _source_of(parameter: click.Parameter, context: click.Context) -> Source | None:
    if type(parameter.type).shell_complete is not click.ParamType.shell_complete:
        return None
    name = (parameter.metavar or parameter.name or "").strip("[].").upper()
    path = context.command_path.partition(" ")[2]
    for place in [*parameter.opts, f"{path} {name}"]:
        if place in BY_PLACE:
            return BY_PLACE[place]
    return BY_NAME.get(name)


def _installed(env: Environment) -> Iterator[str]:
    from leap_core.models.completion_names import installed_names

    return installed_names(env.directories.models)


def _is_configured(env: Environment, table: str) -> bool:
    """Whether config.toml may have a table. To parse it for nothing would take long between two key presses."""
    with suppress(OSError):
        return table.encode() in env.directories.config_file.read_bytes()
    return False


def _aliases(env: Environment) -> dict[str, str]:
    if not _is_configured(env, "aliases"):
        return {}
    from leap_core.models.aliases_and_endpoints import read_aliases

    return read_aliases(env.directories.config_file)


def _endpoints(env: Environment) -> dict[str, str]:
    """The addresses of the remote models, by name; none where the file cannot be read."""
    if not _is_configured(env, "endpoints"):
        return {}
    from leap_core.models.aliases_and_endpoints import known_endpoints

    with suppress(LeapError):
        return {name: each.url for name, each in known_endpoints(env.directories.config_file).items()}
    return {}


def _catalogue(env: Environment) -> dict[str, dict[str, Any]]:
    from leap_core.models.completion_names import catalogue_entries

    return catalogue_entries(env.directories.config)


def _quantizations(env: Environment, model: str | None) -> Iterator[Item]:
    start = None if model is None else model.lower()
    for name in _installed(env):
        if start is not None and name.lower().startswith(f"{start}-"):
            yield CompletionItem(name[len(start) + 1 :], help="on this machine")
    for name, entry in _catalogue(env).items():
        if start in (None, name.lower(), str(entry.get("repo")).lower()):
            yield from (CompletionItem(str(each)) for each in entry.get("quantizations", ()))


def _tools_of_file(path: Path) -> list[str]:
    """The names of the functions that a file defines or declares; a Python file is read, never run."""
    try:
        if path.suffix == ".py":
            import ast

            tree = ast.parse(path.read_bytes())
            names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
            return [name for name in names if not name.startswith("_")]
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return []
    declared = value.get("tools", value) if isinstance(value, dict) else value
    listed = declared if isinstance(declared, list) else [declared]
    functions = (each.get("function", each) for each in listed if isinstance(each, dict))
    return [each["name"] for each in functions if isinstance(each, dict) and isinstance(each.get("name"), str)]


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
