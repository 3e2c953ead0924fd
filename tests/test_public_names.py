"""Every public name is found in ``leap_core`` itself, and type checkers see the same names as programs do."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import leap_core


def test_public_names_resolve():
    for name in leap_core.__all__:
        value = getattr(leap_core, name)
        assert value is getattr(leap_core, name)
        if name in leap_core._HOME:
            assert value is getattr(import_module(f"leap_core.{leap_core._HOME[name]}"), name)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(leap_core.__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: node.module for node in imports for alias in node.names}
    assert seen == {"__version__": "system", **leap_core._HOME}


def test_a_module_by_its_other_name_is_the_same_module():
    for name in leap_core._ALIASES:
        module = import_module(f"leap_core.{name}")
        assert module is import_module(f"leap_core.{leap_core._ALIASES[name]}")
        assert module.__spec__.name == module.__name__


def test_a_module_below_a_package_by_its_other_name_is_the_same_module():
    code = "from leap_core.host.client import lookup; import leap_core.protocols.host as a; print(lookup is a.lookup)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True\n"


def test_every_public_error_is_exported():
    from leap_core import errors

    names = {name for name, value in vars(errors).items() if isinstance(value, type) and name.startswith("Leap")}
    assert names == {name for name, module in leap_core._HOME.items() if module == "errors" and name.startswith("Leap")}


def test_other_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="has no attribute 'Leep'"):
        leap_core.Leep  # noqa: B018
    assert set(leap_core.__all__) <= set(dir(leap_core))
