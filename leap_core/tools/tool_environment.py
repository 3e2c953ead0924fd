"""The variables that a program gets which is not the user's own Python: what programs need to run, and no secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

PASSED_ON = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"),
    }
)
"""Where a program finds itself, its files, its language and its certificates, on every system; with ``LC_*``."""


def short_environment(names: Iterable[str] = (), variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of this process (or these) that are passed on, and those that the user has named."""
    wanted = PASSED_ON | set(names)
    source = os.environ if variables is None else variables
    return {name: value for name, value in source.items() if name in wanted or name.startswith("LC_")}
