"""Options that belong together reach a command as one value."""

from __future__ import annotations

from dataclasses import dataclass

import click
import pytest

from leap_cli.framework.click_classes import CONTEXT_SETTINGS, LeapCommand, LeapGroup, leap_command
from leap_cli.framework.environment import Environment
from leap_cli.framework.option_groups import Arguments, OptionGroup
from leap_cli.framework.options import option, under_headings


@dataclass(frozen=True)
class Size:
    width: int
    typed: bool


@dataclass(frozen=True)
class Paper:
    size: Size
    color: str


SIZE = OptionGroup(
    "size",
    "Size",
    (option("--width", type=int, default=1), option("--narrow", is_flag=True, wish=True)),
    lambda given: Size(given["width"], given.is_typed("width")),
    {"width": ("narrow", "absent")},
)
PAPER = OptionGroup(
    "paper",
    "Paper",
    (click.argument("color"), option("--old-name"), SIZE),
    lambda given: Paper(SIZE.build(given), given["color"]),
)


def call(tmp_path, *words: str, group: OptionGroup = PAPER) -> dict[str, object]:  # type: ignore[type-arg]
    got: dict[str, object] = {}

    @leap_command("print")
    @group
    @option("--own")
    def command(env: Environment, /, **values: object) -> None:
        got.update(values)

    root = LeapGroup("leap", commands={"print": command}, context_settings=CONTEXT_SETTINGS)
    env = Environment(variables={"LEAP_HOME": str(tmp_path)})
    with root.make_context("leap", ["print", *words], obj=env) as context:
        root.invoke(context)
    return got


def test_a_command_gets_the_value_and_its_own_options(tmp_path) -> None:
    assert call(tmp_path, "red", "--width", "3", "--own", "x") == {"paper": Paper(Size(3, True), "red"), "own": "x"}


def test_a_command_of_many_parameters_gets_them_as_one_value(tmp_path) -> None:
    @dataclass(frozen=True)
    class PrintArguments:
        paper: Paper
        own: str | None

    got: list[PrintArguments] = []

    @leap_command("print", into=PrintArguments)
    @PAPER
    @option("--own")
    def command(env: Environment, /, args: PrintArguments) -> None:
        got.append(args)

    with command.make_context("print", ["red"], obj=Environment(variables={"LEAP_HOME": str(tmp_path)})) as context:
        command.invoke(context)
    assert got == [PrintArguments(Paper(Size(1, False), "red"), None)]


def test_a_default_is_not_typed(tmp_path) -> None:
    assert call(tmp_path, "red")["paper"] == Paper(Size(1, False), "red")


def test_conflicting_options_are_refused_before_anything_is_built(tmp_path) -> None:
    def build(_: Arguments) -> None:
        raise AssertionError("built")

    group = OptionGroup("paper", "Paper", (SIZE,), build)
    with pytest.raises(click.UsageError, match="--width cannot be combined with --narrow") as refused:
        call(tmp_path, "--width", "3", "--narrow", group=group)
    assert refused.value.ctx is not None and refused.value.ctx.command_path == "leap print"


def test_a_configured_value_yields_and_an_excluded_option_names_its_source(tmp_path) -> None:
    (tmp_path / "config.toml").write_text("[options]\nnarrow = true\n")
    assert call(tmp_path, "red", "--width", "3")["paper"] == Paper(Size(3, True), "red")
    (tmp_path / "config.toml").write_text("[options]\nwidth = 3\n")
    with pytest.raises(click.UsageError, match=r"combined with --narrow \(it is set in .*options.width\)"):
        call(tmp_path, "red", "--narrow")


def test_headings_are_those_of_the_groups_in_their_order() -> None:
    @leap_command("print")
    @SIZE
    @PAPER
    def command(**_: object) -> None: ...

    assert isinstance(command, LeapCommand)
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert [heading for heading, _ in under_headings(options)] == ["Options"], "they are few"
    more = [click.Option([f"--o{n}"]) for n in range(14)]
    named = {heading: [each.name for each in members] for heading, members in under_headings([*more, *options])}
    assert list(named) == ["Options", "Size", "Paper"]
    assert named["Paper"] == ["old_name"]
    assert named["Size"] == ["width", "narrow"] * 2
