"""Every public name is found in ``leap_core`` itself, and type checkers see the same names as programs do."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import leap_core


@pytest.mark.parametrize("name", leap_core.__all__)
def test_a_public_name_resolves(name):
    value = getattr(leap_core, name)
    assert value is getattr(leap_core, name)
    if name in leap_core._HOME:
        assert value is getattr(import_module(f"leap_core.{leap_core._HOME[name]}"), name)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(leap_core.__file__).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname: node.module for node in block.body for alias in node.names}
    assert seen == leap_core._HOME


def test_every_public_error_is_exported():
    from leap_core import errors

    names = {name for name, value in vars(errors).items() if isinstance(value, type) and name.startswith("Leap")}
    assert names == {name for name, module in leap_core._HOME.items() if module == "errors"}


def test_other_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="has no attribute 'Leep'"):
        leap_core.Leep  # noqa: B018
    assert set(leap_core.__all__) <= set(dir(leap_core))
