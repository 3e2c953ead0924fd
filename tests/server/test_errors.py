"""An error of a warm model is the error that the same model raises in this process."""

from __future__ import annotations

import inspect

import openai
import pytest

from leap_core import GenerationOptions, errors
from leap_core.conversation.calls import LeapFunctionCallParser
from leap_core.conversation.calls.parsers import HermesFunctionCallParser
from leap_core.conversation.messages import ChatMessage
from leap_core.errors import GenerationStats, LeapError, LeapOptionsError, LeapSerializationError
from leap_core.inference.template.sandbox import TemplateTooCostly

ASK = [ChatMessage("user", "Hi")]
CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, LeapError)]
OTHERS = {
    errors.LeapGenerationPromptExceedContextLengthError: lambda kind: kind(9, 8),
    errors.LeapConstraintError: lambda kind: kind(
        "no fit", text="{", problems=["cut"], hint="more", stats=GenerationStats(1, 2, 3, 4.0)
    ),
    errors.LeapSchemaError: lambda kind: kind("no type", pointer="/a", hint="see docs"),
    errors.LeapOptionsError: lambda kind: kind("temperature", "must be warm"),
    errors.LeapGuardError: lambda kind: kind("message", "is_rude", 0.9, 0.5),
    errors.LeapSerializationError: lambda kind: kind("no text", path="messages[0]", hint="say something"),
}


def made(kind: type[LeapError]) -> LeapError:
    return OTHERS.get(kind, lambda kind: kind("it went wrong", hint="do better"))(kind)


@pytest.mark.parametrize("when", ["refused", "within the answer"])
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_keeps_its_class_and_fields(serve, kind, when):
    error = made(kind)
    if issubclass(kind, (errors.LeapModelNotFoundError, errors.LeapUnavailableError)) and when == "refused":
        pytest.skip("these say that the model went, and it is loaded again")
    server = serve(["Par", error], private=True)
    if when == "refused":

        def refuse(*_: object) -> None:
            raise error

        server.runner.start = refuse
    with pytest.raises(LeapError) as caught:
        list(server.warm.start(ASK))
    assert type(caught.value) is kind
    assert vars(caught.value) == vars(error) and str(caught.value) == str(error)


def test_an_option_that_the_host_refuses_is_an_option_error(serve):
    """It was told as a port of another program."""
    options = GenerationOptions(tool_choice="required")
    with pytest.raises(LeapOptionsError, match="no functions are registered") as caught:
        serve("Yes.", private=True).warm.start(ASK, (), options)
    assert caught.value.option == "tool_choice"


def test_a_template_that_costs_too_much_is_no_failure_of_the_server(serve):
    server = serve("Yes.")

    def refuse(*_: object) -> None:
        raise TemplateTooCostly("the chat template costs too much")

    server.runner.start = refuse
    with pytest.raises(openai.BadRequestError, match="costs too much"):
        server.ask()


class Shouting(LeapFunctionCallParser):
    name = "lfm"  # called like one of leap's own

    def __init__(self) -> None:
        super().__init__("CALL", "DONE")


def test_a_parser_of_this_program_is_refused_by_name_on_a_warm_model(serve):
    server = serve("Yes.", "Yes.", private=True)
    with pytest.raises(LeapOptionsError, match="'lfm' is an object of this program"):
        server.warm.start(ASK, (), GenerationOptions(function_call_parser=Shouting()))
    list(server.warm.start(ASK, (), GenerationOptions(function_call_parser=HermesFunctionCallParser())))
    assert server.runner.requests[0].options.function_call_parser == "hermes"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cwd", 5),
        ("slots", "x"),
        ("slots", 0),
        ("slots", 1000),
        ("keep_alive", -5),
        ("keep_alive", "long"),
        ("context_size", True),
        ("cpu_threads", 0),
        ("queue", -1),
        ("chat_template", []),
    ],
)
def test_forbidden_fields_of_a_load_request_are_errors(serve, field, value):
    with pytest.raises((LeapSerializationError, LeapOptionsError)) as caught:
        serve("Yes.", private=True).host.load("builtin", **({"cwd": None} | {field: value}))
    assert getattr(caught.value, "path", None) == field or getattr(caught.value, "option", None) == field
