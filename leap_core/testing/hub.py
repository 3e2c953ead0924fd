"""A Hugging Face hub on 127.0.0.1 that misbehaves where a test wants it. Real HTTP, no network; nothing else is fake.

    with FakeHub() as hub:
        hub.add_file("LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_0.gguf", path_or_bytes)
        hub.fault("drop", after=1_000_000)
        subprocess.run(["leap", "download", "LFM2-350M"], env={**os.environ, **hub.environment})
        assert hub.bytes_served("LFM2-350M-Q4_0.gguf") < 1.05 * size

It serves searches, the tree and revision API, ``resolve`` with a redirect to a second host (another port: the storage),
Range, If-Range, ETag, the headers of LFS files, gated repositories, plain files by URL, and the LEAP registry's end
point.
Every request is logged with its headers and the bytes that were sent in answer.
"""

from __future__ import annotations

from pathlib import Path

from .hub_content import API as API
from .hub_content import FILES as FILES
from .hub_content import RESOLVE as RESOLVE
from .hub_content import Fault as Fault
from .hub_content import HubContent
from .hub_content import HubFile as HubFile
from .hub_content import LoggedRequest as LoggedRequest
from .hub_server import HUB, STORAGE, HubServer


class FakeHub(HubContent):
    """See the module. ``token``: what gated repositories ask for. ``bytes_per_second``: the limit of one connection.
    With ``certificate`` and ``key`` (PEM files) it speaks HTTPS."""

    def __init__(
        self,
        *,
        token: str = "hf_secret",
        bytes_per_second: float | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        super().__init__(token, bytes_per_second)
        self._servers = {name: HubServer(self, name, certificate, key) for name in (HUB, STORAGE)}

    @property
    def url(self) -> str:
        """The hub's own address: HF_ENDPOINT."""
        return self._servers[HUB].address

    @property
    def storage_url(self) -> str:
        return self._servers[STORAGE].address

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead leap to this hub, and not to a proxy."""
        return {"HF_ENDPOINT": self.url, "LEAP_REGISTRY": self.url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def __enter__(self) -> FakeHub:
        for server in self._servers.values():
            server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving; open connections are cut."""
        self.closing.set()
        for server in self._servers.values():
            server.stop()
