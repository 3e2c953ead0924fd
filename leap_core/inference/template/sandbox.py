"""Chat templates are programs from files of others: compiled and rendered in a sandbox, within a budget.

The environment is as Transformers sets it up: blocks trimmed, loop controls, ``tojson`` that does not escape for HTML,
``raise_exception``, ``strftime_now``, and the ``generation`` tag. Loops, calls, filters, output, and whatever joins or
repeats values are counted, so that a rendering ends within its budget wherever it spends it, and other threads get
their turn meanwhile.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from types import GeneratorType
from typing import TYPE_CHECKING, Any, cast

from ...errors import LeapGenerationError, LeapModelLoadingError

if TYPE_CHECKING:
    from jinja2 import Environment, Template, nodes

SECONDS = 3.0
"""A template may compute this long; the time of its thread counts, so that a busy machine refuses nothing."""
MOST_CHARACTERS = 16_000_000
"""That a template may add to what was said, and that a single value may hold."""
MADE_OF_EACH = 8
"""How often over a template may make that much: trimmed, split and joined texts count each time."""
TICKS_BETWEEN_LOOKS = 64
DEEPEST = 100
WIDE = re.compile(r"%[^A-Za-z%]*?(?:\d{4,}|\*)|\{[^{}:]*:[^{}]*(?:\{|\d{4})")
"""A width in a format, of % or of str.format, that is large or comes from a value."""


class BudgetExceeded(Exception):
    """The template costs too much; the message says what of."""


class Budget:
    """``most``: characters that one value, or the output, may have."""

    def __init__(self, most: int = MOST_CHARACTERS, seconds: float = SECONDS) -> None:
        self.most = most
        self._left = most * MADE_OF_EACH
        self._ends = time.thread_time() + seconds
        self._ticks = 0

    def tick(self, weight: int = 1) -> None:
        """One step of a loop, or a call; ``weight``: characters of the template's own text that it may write."""
        self.charge(weight)
        self._ticks += 1
        if self._ticks % TICKS_BETWEEN_LOOKS == 0 and time.thread_time() > self._ends:
            raise BudgetExceeded("it computes for too long")

    def charge(self, characters: int) -> None:
        """Before, or right after, so many characters are made."""
        if characters > self.most:
            raise BudgetExceeded(f"it makes a value of more than {self.most} characters")
        self._left -= characters
        if self._left < 0:
            raise BudgetExceeded(f"it makes more than {self.most * MADE_OF_EACH} characters")

    def check_format(self, text: object) -> None:
        """Of % or str.format."""
        if isinstance(text, (str, bytes)) and WIDE.search(text if isinstance(text, str) else text.decode("latin-1")):
            raise BudgetExceeded("it formats with a width that is too large")

    def size(self, value: Any) -> int:
        """Characters that the value has, or would have when it is written out. Parts that occur several times count
        each time, because lists in lists may be small and endless to read."""
        return self._size(value, {}, 0)

    def _size(self, value: Any, sizes: dict[int, int], depth: int) -> int:
        if isinstance(value, (str, bytes)):
            return len(value) + 2
        if isinstance(value, dict):
            parts: Any = [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            parts = value
        elif type(value).__name__ == "Namespace":
            parts = list(vars(value).get("_Namespace__attrs", {}).values())
        else:
            return 8
        if id(value) in sizes:
            return sizes[id(value)]
        if depth > DEEPEST:
            raise BudgetExceeded("it nests values too deeply")
        total = 2
        for part in parts:
            total += self._size(part, sizes, depth + 1) + 2
            if total > self.most:
                raise BudgetExceeded(f"it makes a value of more than {self.most} characters")
        sizes[id(value)] = total
        return total

    def counted(self, values: Any, weight: int = 1) -> Iterator[Any]:
        """The same values, each of which is a step."""
        for value in values:
            self.tick(weight)
            yield value


class _CurrentBudget(threading.local):
    budget: Budget | None = None


_running = _CurrentBudget()


@contextmanager
def spending(budget: Budget) -> Iterator[Budget]:
    """Within, templates of this thread spend from this budget."""
    outer = _running.budget
    _running.budget = budget
    try:
        yield budget
    finally:
        _running.budget = outer


def current_budget() -> Budget:
    """The budget of the rendering of this thread; a new one where a template is compiled."""
    return _running.budget or Budget()


MOST_NODES = 20_000
"""Parts of a template; compiling them stops every other thread, for half a second at this limit."""
MOST_SOURCE = 300_000
"""Characters of a template; those of models have up to 30,000."""
MOST_MESSAGE = 300
SLOW_FILTERS = {"wordwrap", "title", "striptags", "urlize", "xmlattr", "pprint", "wordcount"}
SLOW_FILTERS |= {"escape", "e", "forceescape"}
SLOW = 100
"""How much more a character costs in filters that look at each."""
WIDTHS = {"center", "indent", "ljust", "rjust", "zfill", "expandtabs", "batch", "slice", "wordwrap"}
"""Filters and methods whose number is a width or a count."""
WIDEST = 1000
MOST_BITS = 4096


class TemplateTooCostly(LeapGenerationError):
    """A rendering has used up its budget; another spelling of the messages would, too."""


def compile_template(source: str) -> Template:
    """Raises LeapModelLoadingError for a template that is none, or too large."""
    if len(source) > MOST_SOURCE:
        raise LeapModelLoadingError(f"the chat template is too large: more than {MOST_SOURCE} characters")
    try:
        with spending(Budget()):
            template: Template = _environment().from_string(source)
            return template
    except Exception as error:  # jinja2's own, and Python's about the code that it makes of a template
        raise LeapModelLoadingError(f"the chat template does not compile: {_said(error)}") from None


def variables_of(source: str) -> set[str]:
    """The names that a template, which compiles, takes from outside."""
    from jinja2 import meta

    return set(meta.find_undeclared_variables(_environment().parse(source)))


def render_template(template: Template, values: dict[str, Any], budget: Budget) -> str:
    """The template's output. Raises TemplateTooCostly, LeapGenerationError when it refuses the values or fails."""
    from jinja2 import TemplateError

    pieces: list[str] = []
    length = 0
    try:
        with spending(budget):
            for piece in template.generate(**values):
                length += len(piece)
                if length > budget.most:
                    raise BudgetExceeded(f"it writes more than {budget.most} characters")
                pieces.append(piece)
    except BudgetExceeded as error:
        raise TemplateTooCostly(f"the chat template costs too much: {error}") from None
    except TemplateError as error:
        raise LeapGenerationError(f"the chat template refuses these messages: {_said(error, named=False)}") from None
    except Exception as error:  # whatever a template does wrong is an error of the template
        raise LeapGenerationError(f"the chat template fails: {_said(error)}") from None
    return "".join(pieces)


def _said(error: Exception, *, named: bool = True) -> str:
    text = " ".join(str(error)[: 4 * MOST_MESSAGE].split())
    text = text if len(text) <= MOST_MESSAGE else text[: MOST_MESSAGE - 1] + "…"
    name = type(error).__name__
    return (f"{name}: {text}" if text else name) if named else text or name


def _counting(tree: nodes.Template) -> nodes.Template:
    """The template with filters of ours where its code would spend without asking."""
    from jinja2 import nodes
    from jinja2.visitor import NodeTransformer

    def filtered(node: nodes.Expr, name: str, *args: nodes.Expr) -> nodes.Filter:
        return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)

    class Counting(NodeTransformer):
        def visit_For(self, node: nodes.For) -> nodes.Node:
            self.generic_visit(node)
            node.iter = filtered(cast("nodes.Expr", node.iter), "_counted", nodes.Const(1 + _text_in(node)))
            return node

        def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
            self.generic_visit(node)
            return filtered(nodes.List(node.nodes, lineno=node.lineno), "_joined")

        def visit_List(self, node: nodes.List) -> nodes.Node:
            self.generic_visit(node)
            return filtered(node, "_built")

        def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
            self.generic_visit(node)
            return filtered(node, "_built") if node.ctx == "load" else node

        def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
            self.generic_visit(node)
            return filtered(node, "_built")

    counted: nodes.Template = Counting().visit(tree)
    return counted


def _text_in(node: nodes.Node) -> int:
    from jinja2 import nodes

    return sum(len(data.data) for data in node.find_all(nodes.TemplateData))


def _sandbox() -> type[Environment]:
    """Jinja's sandbox, whose operations and calls are checked and counted. jinja2 is imported here, for it is slow."""
    from jinja2 import nodes
    from jinja2.runtime import Macro
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["+", "*", "**", "%"])
        text_of_source = 0

        def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
            tree = super()._parse(source, name, filename)
            if sum(1 for _ in tree.find_all(nodes.Node)) > MOST_NODES:
                raise BudgetExceeded(f"it has more than {MOST_NODES} parts")
            self.text_of_source = _text_in(tree)
            return _counting(tree)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            """As the base class has it; lists may grow, as templates of Kimi K2 make them."""
            return (isinstance(obj, list) and attr == "append") or super().is_safe_attribute(obj, attr, value)

        def wrap_str_format(self, value: Any) -> Any:
            """``str.format`` as the sandbox replaces it, checked before it runs."""
            replaced = super().wrap_str_format(value)
            if replaced is None:
                return None
            text, name = value.__self__, value.__name__

            @wraps(replaced)
            def checked(*args: Any, **kwargs: Any) -> Any:
                _check_method(current_budget(), name, text, args, kwargs)
                return replaced(*args, **kwargs)

            return checked

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            budget = current_budget()
            _check_operation(budget, operator, left, right)
            value = super().call_binop(context, operator, left, right)
            return _measured(budget, value)

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: B902
            budget = current_budget()
            budget.tick(1 + (__self.text_of_source if isinstance(__obj, Macro) else 0))
            owner = getattr(__obj, "__self__", None)
            if isinstance(owner, (str, bytes)):
                _check_method(budget, str(getattr(__obj, "__name__", "")), owner, args, kwargs)
            return _measured(budget, super().call(__context, __obj, *args, **kwargs))

    return Sandbox


def _environment() -> Environment:
    from jinja2 import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser

    class GenerationTag(Extension):
        tags = {"generation"}

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = _sandbox()(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag], finalize=_written
    )
    environment.filters["tojson"] = _to_json
    environment.filters = {name: _metered(name, each) for name, each in environment.filters.items()}
    environment.filters |= {"_counted": _counted, "_joined": _joined, "_built": _built}
    del environment.globals["lipsum"]
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(str(form)[:200])
    return environment


def _counted(values: Any, weight: int) -> Any:
    return current_budget().counted(values, weight)


def _joined(values: list[Any]) -> str:
    budget = current_budget()
    budget.charge(budget.size(values))
    return "".join(map(str, values))


def _built(value: Any) -> Any:
    budget = current_budget()
    budget.tick()
    budget.size(value)
    return value


def _written(value: Any) -> Any:
    """Every value that a template writes, into its output or into a variable."""
    budget = current_budget()
    budget.charge(budget.size(value))
    return value


def _measured(budget: Budget, value: Any) -> Any:
    """A value that was just made."""
    if isinstance(value, (str, bytes)):
        budget.charge(len(value))
    elif isinstance(value, (list, tuple, dict)):
        budget.size(value)
    elif isinstance(value, GeneratorType):
        return budget.counted(value)
    return value


def _metered(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is checked before it runs, and its result after it."""

    @wraps(function)
    def metered(*args: Any, **kwargs: Any) -> Any:
        budget = current_budget()
        budget.tick()
        own = args[1:] if getattr(function, "jinja_pass_arg", None) is not None else args
        own = tuple(list(budget.counted(each)) if isinstance(each, GeneratorType) else each for each in own)
        for each in own:
            size = budget.size(each)
            budget.charge(size * SLOW if name in SLOW_FILTERS else size // 4)
        if own and isinstance(own[0], str):
            _check_method(budget, name, own[0], own[1:], kwargs)
        elif name == "join" and own and isinstance(own[0], (list, tuple)):
            between = kwargs.get("d", own[1] if len(own) > 1 else "")
            budget.charge(len(own[0]) * len(str(between)))
        _check_widths(name, (*own[1:], *kwargs.values()))
        return _measured(budget, function(*args[: len(args) - len(own)], *own, **kwargs))

    return metered


def _check_widths(name: str, arguments: tuple[Any, ...]) -> None:
    if name in WIDTHS and any(_is_large(each) for each in arguments):
        raise BudgetExceeded(f"{name} makes too wide a text")


def _is_large(value: Any) -> bool:
    return (isinstance(value, int) and abs(value) > WIDEST) or (isinstance(value, str) and len(value) > WIDEST)


def _check_method(budget: Budget, name: str, text: str | bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before a method of a text, or a filter of the same name, makes a longer one."""
    _check_widths(name, (*args, *kwargs.values()))
    if name in WIDTHS:
        budget.charge((_count(text, "\n") + 1) * WIDEST)
    elif name == "replace" and len(args) >= 2 and isinstance(args[0], type(text)) and isinstance(args[1], type(text)):
        times = cast("Any", text).count(args[0]) if args[0] else len(text) + 1
        budget.charge(len(text) + times * len(args[1]))
    elif name == "join" and args and isinstance(args[0], (list, tuple, dict)):
        budget.charge(budget.size(args[0]) + len(args[0]) * len(text))
    elif name in ("format", "format_map"):
        budget.check_format(text)
        values = sum(budget.size(each) for each in (*args, *kwargs.values()))
        budget.charge(values * (_count(text, "{") + _count(text, "%")))
    elif name == "translate":
        raise BudgetExceeded("it translates a text by a table")


def _count(text: str | bytes, character: str) -> int:
    return text.count(character) if isinstance(text, str) else text.count(character.encode())


def _check_operation(budget: Budget, operator: str, left: Any, right: Any) -> None:
    if operator == "**":
        raise BudgetExceeded("** makes too large a value")
    if operator == "%":
        if isinstance(left, (str, bytes)):
            budget.check_format(left)
            budget.charge(len(left) + budget.size(right) * max(_count(left, "%"), 1))
    elif operator == "+":
        if hasattr(left, "__len__") and hasattr(right, "__len__"):
            budget.charge(len(left) + len(right))
    elif isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > MOST_BITS:
            raise BudgetExceeded("* makes too large a number")
    else:
        sizes = [budget.size(side) if hasattr(side, "__len__") else abs(side) for side in (left, right)]
        budget.charge(int(min(sizes[0] * sizes[1], budget.most + 1)))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    width = len(indent) if isinstance(indent, str) else indent or 0
    if width > 16:
        raise BudgetExceeded("tojson indents too far")
    budget = current_budget()
    budget.charge(budget.size(value) * (2 + width))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
