"""Certificates that a variable names, to be trusted instead of the system's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

CERTIFICATE_FILES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def named_certificates(variables: Mapping[str, str]) -> tuple[str, str] | None:
    """The first of CERTIFICATE_FILES that is set, and its file."""
    return next(((name, variables[name]) for name in CERTIFICATE_FILES if variables.get(name)), None)


def trusted(named: tuple[str, str] | None) -> ssl.SSLContext | bool:
    """What httpx takes as ``verify``. Raises OSError, with variable and file, for one that cannot be used."""
    if named is None:
        return True
    import ssl

    variable, file = named
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        reason = "it has no certificates (PEM)" if isinstance(error, ssl.SSLError) else error.strerror
        raise OSError(f"cannot read the certificates of {variable}={file}: {reason}") from None
