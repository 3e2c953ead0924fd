"""click's classes as leap uses them, and arguments that are text or a format.

Knows nothing of what the commands do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from importlib import import_module
from textwrap import indent
from typing import TYPE_CHECKING, Any, Protocol, cast

import click

from leap_core.system.dataclass import dataclass

from .arguments import check_texts, keep_inputs, leave_out_effects, take_format_of_output
from .environment import Environment
from .options import FEWEST, OPTION_GROUPS, OPTIONS, option, under_headings
from .output import Format
from .rare_names import OPTION, by_name, named

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from leap_core.system.plugins import Plugin

    from .help_text import HelpFormatter


OTHER_VERBS = {
    "ls": ("list",),
    "rm": ("remove",),
    "delete": ("remove",),
    "info": ("info", "show", "status", "get"),
    "show": ("info", "status", "get"),
    "status": ("info", "show"),
}
"""What else a verb may be called, in every group: the first of these that a group has."""
CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
PLUGINS = "Plugins"
"""The heading of commands that other packages bring."""
HELP_ALL = "--help-all"
SHOWS_ALL = "leap.help_all"
"""In a context's meta: whether help shows the rare options, too."""
STANDARD_INPUT = "-"
"""The prompt that is read from standard input."""


@dataclass(frozen=True)
class TableEntry:
    """Where a command lives, and what ``leap --help`` says of it without importing it."""

    module: str
    summary: str
    group: str
    attribute: str = "command"


class HelpGuide(Protocol):
    """What help shows beside the options themselves."""

    def examples(self, path: str) -> tuple[str, ...]:
        """Lines that use the command of this path, such as ``models list``."""

    def output(self, path: str) -> str:
        """What the first of these lines prints; nothing where that differs."""

    def topic(self, path: str) -> str:
        """The guide that says more about it."""

    def is_rare(self, option: click.Option) -> bool:
        """Whether only ``--help-all`` shows it."""


class HelpContext(click.Context):
    """A context whose help is laid out as ``help_text`` says, which is not imported before. ``typed``: the words after
    the command's name."""

    typed: Sequence[str] = ()

    def make_formatter(self) -> HelpFormatter:
        from .help_text import HelpFormatter

        return HelpFormatter(width=self.terminal_width, max_width=self.max_content_width)


class LeapCommand(click.Command):
    """A command that prints its help to the environment it is given, never to sys.stdout, and whose options may also be
    given by variables and the configuration file.

    ``repairs``: it, and each command of a group, runs although config.toml cannot be read, because it says or mends
    that. ``into``: a dataclass with a field for each parameter, which the function gets as ``args`` in their place.
    """

    context_class = HelpContext

    def __init__(self, *args: Any, repairs: bool = False, into: type | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params = by_name(self.params)
        self.repairs, self.into = repairs, into
        self.option_groups = list(getattr(self.callback, OPTION_GROUPS, ()))
        if self.callback is not None and not isinstance(self, click.Group):
            self.callback = click.pass_obj(self.callback)

    def invoke(self, ctx: click.Context) -> Any:
        if self.option_groups:
            from .option_groups import hand_over

            hand_over(ctx, self.option_groups)
        if self.into is not None:
            ctx.params = {"args": self.into(**ctx.params)}
        try:
            return super().invoke(ctx)
        except ValueError as error:
            from leap_core.errors import LeapOptionsError

            if not isinstance(error, LeapOptionsError):
                raise
            option = next((each for each in self.params if each.name == error.option), None)
            if isinstance(option, click.Option):  # its own name, which was typed, instead of the library's
                error.message = f"{max(option.opts, key=len)}: {error.reason}"
            raise

    def make_parser(self, ctx: click.Context) -> Any:
        """Short names among the long ones: click looks there first, and makes an error with suggestions of each that
        it does not find, before it looks among the short ones."""
        parser: Any = super().make_parser(ctx)
        parser._long_opt = parser._short_opt | parser._long_opt
        given, match = parser._get_value_from_state, parser._match_long_opt

        def value_of(name: str, spelled: Any, state: Any) -> Any:
            """An option that means a number by itself takes one after it, and no other word."""
            option, rest = spelled.obj, state.rargs
            may_follow = not (option._flag_needs_value and isinstance(option.type, click.IntRange))
            if may_follow or state.joined or (rest and rest[0].isdecimal()):
                return given(name, spelled, state)
            return option.flag_value

        def match_long(name: str, value: str | None, state: Any) -> None:
            if name == OPTION and OPTION in parser._long_opt:
                if value is None and state.rargs:
                    value = state.rargs.pop(0)
                name, value = named(value, parser._long_opt)
            state.joined = value is not None  # --name=value
            match(name, value, state)

        parser._get_value_from_state, parser._match_long_opt = value_of, match_long
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and args and args[-1].startswith("-"):
            args = args[:-1]  # completion: an option that waits for its value would hide what comes before it
        if ctx.parent is None or ctx.resilient_parsing or isinstance(self, click.Group):
            return super().parse_args(ctx, args)
        from .option_defaults import OptionDefaults

        path = ctx.command_path.partition(" ")[2]
        repairs = self.repairs or getattr(ctx.parent.command, "repairs", False)
        ctx.default_map = defaults = OptionDefaults(self, path, ctx.ensure_object(Environment), repairs=repairs)
        if isinstance(ctx, HelpContext):
            ctx.typed = tuple(args)
        try:
            rest = super().parse_args(ctx, args)
            ctx.ensure_object(Environment).last_line.is_quiet = bool(ctx.params.get("quiet"))
            check_texts(ctx)
            keep_inputs(ctx)
            take_format_of_output(ctx)
            leave_out_effects(ctx)
            for warning in defaults.warnings:
                from .output import Output

                Output(ctx.ensure_object(Environment)).warning(warning)
            return rest
        except (click.BadOptionUsage, click.NoSuchOption) as error:
            error.ctx = error.ctx or ctx  # click's parser does not always say whose option it is
            raise
        except click.BadParameter as error:
            name = str(error.param.name) if error.param is not None else ""
            if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT_MAP:
                raise
            raise click.UsageError(f"{defaults.origins[name]}: {error.message}", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Many options are listed under headings, or without those that only ``--help-all`` shows."""
        from .help_text import row_of, short_row_of

        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option) and not each.hidden]
        rare = self._rare_options(ctx)
        if rare:
            with formatter.section(OPTIONS):
                formatter.write_dl([short_row_of(each, ctx) for each in options if each not in rare])
            formatter.write_paragraph()
            formatter.write_text(f"{ctx.command_path} --help-all shows {len(rare)} more options.")
            return
        for heading, members in under_headings(options):
            with formatter.section(heading):
                formatter.write_dl([row_of(each, ctx) for each in members])

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first paragraph alone where options are left out."""
        if not self._rare_options(ctx):
            super().format_help_text(ctx, formatter)
            return
        with formatter.indentation():
            formatter.write_paragraph()
            formatter.write_text((self.help or "").partition("\n\n")[0])

    def _rare_options(self, ctx: click.Context) -> list[click.Option]:
        """The options that ``--help`` leaves out: none where a command has few, or where all are asked for."""
        guide = _guide(ctx)
        if guide is None or ctx.meta.get(SHOWS_ALL) or not self.has_many_options:
            return []
        return [each for each in self.params if isinstance(each, click.Option) and guide.is_rare(each)]

    @cached_property
    def has_many_options(self) -> bool:
        return len([each for each in self.params if isinstance(each, click.Option) and not each.hidden]) >= FEWEST

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """With ``--help-all`` after ``--help``; it is listed where it may show more."""
        return [*super().get_params(ctx), self._help_all]

    @cached_property
    def _help_all(self) -> click.Option:
        return click.Option(
            [HELP_ALL],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            hidden=not self.has_many_options,
            callback=_show_all_help,
            help="Show all options and exit.",
        )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, and where to read more."""
        guide, path = _guide(ctx), ctx.command_path.partition(" ")[2]
        if guide is None or isinstance(self, click.Group):
            return
        examples = guide.examples(path)
        if examples:
            output, is_short = guide.output(path), bool(self._rare_options(ctx))
            with formatter.section("Example" if is_short or not examples[1:] else "Examples"):
                for line in examples[:1] if is_short else examples:
                    cast("HelpFormatter", formatter).write_example(line)
                    if line == examples[0] and output:
                        formatter.write(indent(output, " " * formatter.current_indent) + "\n")
        formatter.write_paragraph()
        formatter.write_text(f"More: leap help {guide.topic(path)}")

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """The same in every context: click keeps the option that it made for the first one."""
        return list(CONTEXT_SETTINGS["help_option_names"])

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Made here, for click would translate its words, and importing what it needs for that costs more."""
        if self._help_option is None:
            self._help_option = click.Option(
                self.get_help_option_names(ctx),
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_help,
                help="Show this message and exit.",
            )
        return self._help_option


class LeapGroup(LeapCommand, click.Group):
    """A group of commands in one file, such as ``leap models list``; its commands are LeapCommands too.

    ``verb``: the command of a line whose first word is none. ``no_names``: first words that are refused, because other
    programs have commands of these names; a UsageError says ``instead``.
    """

    command_class = LeapCommand
    group_class = type

    def __init__(
        self, *args: Any, verb: str = "", no_names: Collection[str] = (), instead: str = "", **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.verb, self.no_names, self.instead = verb, no_names, instead

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A verb, or one of its other spellings."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        spelling = next((each for each in OTHER_VERBS.get(cmd_name, ()) if each in self.commands), None)
        return None if spelling is None else super().get_command(ctx, spelling)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The whole summary of each command."""
        rows = [(name, command.get_short_help_str(200)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Alone it lists what it is about; where there is nothing to list it shows its help."""
        if ctx.parent is not None and not ctx.resilient_parsing:
            args = self._with_verb(ctx, args)
        return super().parse_args(ctx, args)

    def _with_verb(self, ctx: click.Context, args: list[str]) -> list[str]:
        """``leap sessions log --limit 5`` is ``leap sessions log list --limit 5``, ``leap eval CASES`` is ``leap eval
        run CASES``."""
        lists = "list" in self.commands
        if not args:
            return ["list"] if lists else ["--help"]
        first, own = args[0], [name for option in self.get_params(ctx) for name in option.opts]
        if self.verb and not lists:  # --help-all is the verb's: it has the options
            own = list(ctx.help_option_names)
        if first.startswith("-"):
            only_options = all(each.startswith("-") for each in args)
            verb = "list" if lists and (only_options or not self.verb) else self.verb
            return [verb, *args] if verb and first not in own else args
        if not self.verb or self.get_command(ctx, first) is not None:
            return args
        if first in self.no_names:
            raise click.UsageError(f"{first!r} is no command here: {self.instead}", ctx)
        return [self.verb, *args]


class CommandTable(LeapGroup):
    """The root: commands are imported when they are used, so that help and completion stay quick.

    ``default`` is the command of a line that begins with a prompt, or with an option of that command: see
    ``with_default``.
    """

    def __init__(
        self,
        table: Mapping[str, TableEntry],
        groups: tuple[str, ...],
        *,
        default: str,
        pointers: Mapping[str, Mapping[str, str]],
        spellings: Mapping[str, str],
        guide: Callable[[], HelpGuide] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(**attributes)
        self.guide = guide
        self.table = table
        self.groups = groups
        self.default = default
        self.pointers = pointers
        """What to write for the verbs of other programs, by group."""
        self.spellings = spellings
        """Options, or sentences that begin with a letter, with the names that other programs give them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing and _something_is_piped(ctx.ensure_object(Environment)):
            args = [STANDARD_INPUT]
        return super().parse_args(ctx, self.with_default(args, ctx.ensure_object(Environment)))

    def entries(self, env: Environment) -> dict[str, TableEntry]:
        """The table, with the commands of plugins."""
        found = self._plugins(env).values()
        return {**self.table, **{each.name: TableEntry("", each.summary, PLUGINS) for each in found}}

    def _plugins(self, env: Environment) -> dict[str, Plugin]:
        from leap_core.errors import LeapError
        from leap_core.system.plugins import COMMANDS, plugins

        from .output import Output

        warn = None if "_LEAP_COMPLETE" in env.variables else partial(Output(env).warning, once=True)
        with suppress(LeapError):  # no home directory: the command says so
            return plugins(COMMANDS, env.directories, reserved=self.table, on_warning=warn)
        return {}

    def with_default(self, args: list[str], env: Environment) -> list[str]:
        """The line with the command that it leaves out.

        Its first word decides: one that cannot be a command's name, or the ``-`` of standard input, is a prompt; any
        other is a command's name, so that a mistyped one is never answered by a model. Raises UsageError for such a
        word after options.
        """
        if not args or args[0] in self.table or args[0] in self._own_options:
            return args
        begin = args[0]
        if begin.startswith("-") and begin not in ("-", "--"):
            if self._is_option_of_default(begin):
                self._check_first_word(args)
                return [self.default, *args]
            return [self.default, "--", *args] if any(map(str.isspace, begin)) else args
        first = args[1] if begin == "--" and len(args) > 1 else begin
        if is_prompt(first):
            return [self.default, *args]
        may_be_prompt = any(map(self._is_option_of_default, args[1:])) and self._looks_like_no_command(first)
        if may_be_prompt and first not in self._plugins(env):
            return [self.default, *args]
        return args

    @property
    def _own_options(self) -> list[str]:
        own = [name for option in self.params for name in option.opts]
        return [*CONTEXT_SETTINGS["help_option_names"], HELP_ALL, *own]

    def _is_option_of_default(self, word: str) -> bool:
        names = [name for option in self._default_command().params for name in (*option.opts, *option.secondary_opts)]
        return word.partition("=")[0] in names if word.startswith("--") else word[:2] in names

    def _looks_like_no_command(self, word: str) -> bool:
        """Whether a word is neither a mistyped command nor another program's verb: beside an option it is a prompt."""
        from difflib import get_close_matches  # here, because every start would pay for it

        return word not in self.pointers.get("", {}) and not get_close_matches(word.lower(), self.table, cutoff=0.75)

    def _check_first_word(self, args: list[str]) -> None:
        command = self._default_command()
        try:
            values, _, _ = command.make_parser(click.Context(command)).parse_args(args.copy())
        except click.UsageError:  # the command will say it
            return
        argument = next(parameter for parameter in command.params if isinstance(parameter, click.Argument))
        words = values.get(str(argument.name))
        first = words[0] if isinstance(words, tuple) and words else "-"  # standard input alone
        if first in self.table:
            raise click.UsageError(f"options come after the command: leap {first} {args[0]} ...")
        template = next((each for each in command.params if "--template" in each.opts), None)
        fills_template = template is not None and values.get(str(template.name))
        if not (is_prompt(first) or self._looks_like_no_command(first) or fills_template):
            raise click.exceptions.NoSuchCommand(
                first, possibilities=self.table, ctx=click.Context(self, info_name="leap")
            )

    def _default_command(self) -> click.Command:
        command = self.get_command(click.Context(self), self.default)
        assert command is not None
        return command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names come from the table, so that no command is imported; options as click knows them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        entries = self.entries(ctx.ensure_object(Environment)).items()
        return [CompletionItem(name, help=e.summary) for name, e in entries if name.startswith(incomplete.lower())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        if entry is None:
            plugin = self._plugins(ctx.ensure_object(Environment)).get(cmd_name)
            return None if plugin is None else _loaded(plugin)
        command = getattr(import_module(entry.module), entry.attribute)
        assert isinstance(command, LeapCommand), f"{entry.module}.{entry.attribute} is not a LeapCommand"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            possible = self.entries(ctx.ensure_object(Environment))
            if name not in possible:
                raise click.exceptions.NoSuchCommand(name, possibilities=possible, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Right below the usage: every line of the screen counts."""
        with formatter.indentation():
            for line in (self.help or "").replace("\b", "").strip().splitlines():
                formatter.write_text(line.strip())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands alone: all of it fits one screen, and the two options are the ones every program has."""
        self.format_commands(ctx, formatter)

    def overview(self, ctx: click.Context) -> str:
        """What the program is and the names of its commands, in one screen."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        formatter.write_paragraph()
        names = {g: [name for name, entry in self.table.items() if entry.group == g] for g in self.groups}
        formatter.write_dl([(group, ", ".join(members)) for group, members in names.items()])
        formatter.write_paragraph()
        formatter.write_text("leap --help says what each does; leap help lists the guides.")
        return formatter.getvalue().rstrip("\n")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A line a command, the group's name before its first; above it where there is little space."""
        table = self.entries(ctx.ensure_object(Environment))
        groups = self.groups if len(table) == len(self.table) else (*self.groups, PLUGINS)
        width, group_width = max(map(len, table)), max(map(len, groups))
        if cast("HelpFormatter", formatter).is_narrow:
            for group in groups:
                with formatter.section(group):
                    formatter.write_dl([(name, e.summary) for name, e in table.items() if e.group == group])
            return
        formatter.write_paragraph()
        for group in groups:
            heading = group
            for name, entry in table.items():
                if entry.group == group:
                    formatter.write(f"{heading:<{group_width}}  {name:<{width}}  {entry.summary}\n")
                    heading = ""


def _loaded(plugin: Plugin) -> click.Command:
    """The command of a plugin. Raises LeapError where it cannot be imported, or is no command."""
    command = plugin.load()
    if not isinstance(command, click.Command):
        raise plugin.error("is not a click command")
    return command


def _something_is_piped(env: Environment) -> bool:
    """Whether standard input is no terminal and holds something; nothing is taken from it."""
    if env.stdin_is_terminal:
        return False
    with suppress(OSError, ValueError):
        if hasattr(env.stdin, "peek"):
            return bool(env.stdin.peek(1))
        place = env.stdin.tell()
        more = bool(env.stdin.read(1))
        env.stdin.seek(place)
        return more
    return False


def is_prompt(word: str) -> bool:
    """Whether a word at the beginning of a line is a prompt: no command's name looks like it."""
    return word == "-" or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", word)


leap_command: Callable[..., Callable[[Callable[..., Any]], LeapCommand]] = partial(
    click.command, cls=LeapCommand, context_settings=CONTEXT_SETTINGS
)
"""The decorator of a command: ``@leap_command()`` above a function whose first argument is the Environment; it returns
an ExitCode, or None for DONE."""

leap_group: Callable[..., Callable[[Callable[..., Any]], LeapGroup]] = partial(
    click.group, cls=LeapGroup, context_settings=CONTEXT_SETTINGS
)
"""The decorator of a noun with verbs: ``@leap_group()`` above a function, then ``@that.command()`` above each verb."""


def _guide(ctx: click.Context) -> HelpGuide | None:
    guide = getattr(ctx.find_root().command, "guide", None)
    return None if guide is None else guide()


def _show_all_help(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    ctx.meta[SHOWS_ALL] = value
    _show_help(ctx, parameter, value)


def _show_help(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.default_map = None  # help is the same for everybody, also where the configuration cannot be read
        ctx.ensure_object(Environment).stdout.write(ctx.get_help() + "\n")
        ctx.exit()


FORMATS = tuple(each.value for each in Format)


class FormatChoice(click.Choice[str]):
    """The formats of data; ``human`` is another name of text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(super().convert("text" if value == "human" else value, param, ctx))


def format_choice(help: str, formats: Sequence[str] = FORMATS, **more: Any) -> Callable[[Any], Any]:
    """The option of a command that prints data in these formats, the first of them by default."""
    decorator: Callable[[Any], Any] = option(
        "--format", type=FormatChoice(formats), default=formats[0], help=help, **more
    )
    return decorator


def format_option(quiet: str) -> Callable[[Any], Any]:
    """The option of a command whose data are things with names; ``quiet`` prints only them."""
    return format_choice(f"Output format: text, one JSON document, JSON Lines, or quiet: {quiet} only.")


format_flag = format_option("ids")
"""The option of a command whose data are things with ids."""
