"""A certificate authority that nobody knows, and a server that it has signed."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """The certificate of an authority that nobody knows, and a server's that it has signed for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    folder = tmp_path_factory.mktemp("authority")

    def openssl(words: str) -> None:
        subprocess.run(["openssl", *words.split()], check=True, capture_output=True, cwd=folder)

    keys = "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
    (folder / "names").write_text(f"{keys}subjectAltName=IP:127.0.0.1,DNS:models.invalid")
    ec = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"  # made at once, which RSA is not
    openssl(f"req -x509 {ec} -days 2 -subj /CN=Ours -addext keyUsage=keyCertSign -keyout ca.key -out ca.pem")
    openssl(f"req {ec} -subj /CN=127.0.0.1 -keyout key.pem -out request")
    openssl("x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem")
    openssl("verify -x509_strict -CAfile ca.pem cert.pem")  # as Python 3.13 does
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return folder / "ca.pem", context
