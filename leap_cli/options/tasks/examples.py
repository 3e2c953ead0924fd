"""The option of examples that a model is shown before a text."""

from __future__ import annotations

from ...framework.environment import Environment
from ...framework.options import option
from ...framework.text_arguments import FileName

EXAMPLES = option(
    "--examples",
    type=FileName(),
    metavar="FILE",
    help="Show the model these cases first: JSON lines with a text and its document, both checked.",
)


def read_examples_argument(name: str, schema: dict[str, object], env: Environment) -> list[dict[str, object]]:
    """The examples of a file. Raises LeapSerializationError for one that is wrong."""
    from leap_core.tasks.examples import examples_of_file

    return [each.to_json() for each in examples_of_file(env.cwd / name, schema, name)]
