"""llama-cpp-python's ctypes bindings without the high-level classes that its package imports beside them.

Those take four times as long to import as the bindings, and a model's weights cannot be read before. The package is
there all the same: a request for more than the bindings gets all of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

PACKAGE = "llama_cpp"
_settings: list[Callable[[], object]] = []


def keep(setting: Callable[[], object]) -> None:
    """Make a setting of llama.cpp's again whenever the package is imported whole: it makes its own, as of the log."""
    _settings.append(setting)


def bindings(name: str) -> Any:
    """The module ``llama_cpp.NAME``."""
    if PACKAGE not in sys.modules:
        spec = find_spec(PACKAGE)
        if spec is not None and spec.loader is not None and spec.submodule_search_locations:
            sys.modules[PACKAGE] = _Package(spec)
    return import_module(f"{PACKAGE}.{name}")


class _Package(ModuleType):
    """The package, executed when something of it is missing."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__spec__, self.__loader__, self.__package__ = spec, spec.loader, spec.name
        self.__file__ = spec.origin
        self.__path__ = spec.submodule_search_locations or []
        self._guard = threading.RLock()
        self._begun = False

    def __getattr__(self, name: str) -> Any:
        with self._guard:
            if not self._begun:
                self._begun = True
                assert self.__spec__ is not None and self.__spec__.loader is not None
                try:
                    self.__spec__.loader.exec_module(self)
                    for setting in _settings:
                        setting()
                except BaseException:
                    self._begun = False
                    raise
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}") from None
