"""Stores of other programs, made after their published layouts, with small GGUF files in them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path


class OtherStores:
    """Makes stores below ``home``; ``gguf`` is the content of each model."""

    def __init__(self, home: Path, gguf: bytes) -> None:
        self.home, self.gguf = home, gguf

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a user whose home this is."""
        return {"HOME": str(self.home), "LEAP_OTHER_PROGRAMS": "1"}

    def write(self, path: str, content: bytes | str) -> Path:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def weights(self, name: str) -> bytes:
        """A model that differs from all others: what follows the tensors is read by nobody."""
        return self.gguf + name.encode()

    def ollama(self, name: str, tag: str = "latest", *, more: dict[str, bytes] | None = None) -> Path:
        """``name``: host, namespace and model. ``more``: further layers by their kind."""
        root = ".ollama/models"
        layers = []
        for kind, content in {"model": self.weights(f"{name}:{tag}"), **(more or {})}.items():
            digest = hashlib.sha256(content).hexdigest()
            self.write(f"{root}/blobs/sha256-{digest}", content)
            media = f"application/vnd.ollama.image.{kind}"
            layers.append({"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)})
        manifest = {"schemaVersion": 2, "config": {}, "layers": layers}
        self.write(f"{root}/manifests/{name}/{tag}", json.dumps(manifest))
        return self.home / root / "blobs" / layers[0]["digest"].replace(":", "-")

    def lm_studio(self, publisher: str, model: str, *files: str) -> Path:
        for file in files:
            path = self.write(f".lmstudio/models/{publisher}/{model}/{file}", self.weights(file))
        return path

    def hub(self, root: str, repo: str, *files: str) -> Path:
        """Hugging Face's layout, which llama.cpp has too: links in a snapshot, to blobs."""
        base = f"{root}/models--{repo.replace('/', '--')}"
        self.write(f"{base}/refs/main", "c0ffee")
        for file in files:
            content = self.weights(file)
            digest = hashlib.sha256(content).hexdigest()
            self.write(f"{base}/blobs/{digest}", content)
            link = self.home / base / "snapshots" / "c0ffee" / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(self.home / base / "blobs" / digest, link.parent))
        return link

    def llama_cpp(self, owner: str, repo: str, file: str) -> Path:
        """The former flat cache."""
        self.write(f".cache/llama.cpp/manifest={owner}={repo}=latest.json", "{}")
        return self.write(f".cache/llama.cpp/{owner}_{repo}_{file}", self.weights(file))

    def jan(self, id: str) -> Path:
        folder = f".local/share/Jan/data/llamacpp/models/{id}"
        where = f"llamacpp/models/{id}/model.gguf"
        self.write(f"{folder}/model.yml", f"embedding: false\nmodel_path: {where}\nname: {id}\nsize_bytes: 9\n")
        return self.write(f"{folder}/model.gguf", self.weights(id))

    def gpt4all(self, file: str) -> Path:
        return self.write(f".local/share/nomic.ai/GPT4All/{file}", self.weights(file))

    def docker(self, *tags: str) -> Path:
        content = self.weights(tags[0])
        digest = hashlib.sha256(content).hexdigest()
        layer = {"mediaType": "application/vnd.docker.ai.gguf.v3", "digest": f"sha256:{digest}", "size": len(content)}
        manifest = json.dumps({"layers": [layer]})
        id = hashlib.sha256(manifest.encode()).hexdigest()
        self.write(".docker/models/layout.json", '{"version": "1.0.0"}')
        index = self.home / ".docker/models/models.json"
        models = json.loads(index.read_text())["models"] if index.exists() else []
        models.append({"id": f"sha256:{id}", "tags": list(tags), "files": []})
        self.write(".docker/models/models.json", json.dumps({"models": models}))
        self.write(f".docker/models/manifests/sha256/{id}", manifest)
        return self.write(f".docker/models/blobs/sha256/{digest}", content)

    def ramalama(self, transport: str, name: str, tag: str, file: str) -> Path:
        content = self.weights(file)
        digest = f"sha256-{hashlib.sha256(content).hexdigest()}"
        base = f".local/share/ramalama/store/{transport}/{name}"
        self.write(f"{base}/blobs/{digest}", content)
        link = self.home / base / "snapshots" / "sha256-5" / file
        link.parent.mkdir(parents=True)
        link.symlink_to(f"../../blobs/{digest}")
        entry = {"hash": digest, "name": file, "type": "gguf"}
        ref = {"hash": "sha256:5", "path": "", "files": [entry], "version": "v1.0"}
        self.write(f"{base}/refs/{tag}.json", json.dumps(ref))
        return link

    def fill(self) -> dict[str, Path]:
        """A model of each program: its file by the name that it is listed by."""
        return {
            "llama3.2:1b": self.ollama(
                "registry.ollama.ai/library/llama3.2", "1b", more={"template": b"{{ .Prompt }}"}
            ),
            "me/mine:latest": self.ollama("registry.ollama.ai/me/mine"),
            "hf.co/bartowski/Tiny-GGUF:Q8_0": self.ollama("hf.co/bartowski/Tiny-GGUF", "Q8_0"),
            "unsloth/Nine-9B-GGUF:Q4_K_M": self.lm_studio("unsloth", "Nine-9B-GGUF", "Nine-9B-Q4_K_M.gguf"),
            "My Lab/My Model": self.lm_studio("My Lab", "My Model", "My Model.gguf"),
            "ggml-org/Flat-GGUF:Q4_0": self.llama_cpp("ggml-org", "Flat-GGUF", "Flat-Q4_0.gguf"),
            "ggml-org/New-GGUF:Q8_0": self.hub(".cache/llama.cpp", "ggml-org/New-GGUF", "New-Q8_0.gguf"),
            "o/Hub-GGUF:Q6_K": self.hub(".cache/huggingface/hub", "o/Hub-GGUF", "Hub-Q6_K.gguf"),
            "janhq/jan-v9": self.jan("janhq/jan-v9"),
            "ghost-7b-Q4_0": self.gpt4all("ghost-7b-Q4_0.gguf"),
            "ai/dock:360M-Q4_K_M": self.docker("docker.io/ai/dock:360M-Q4_K_M"),
            "lab/ram:Q5_K_M": self.ramalama("huggingface", "lab/ram", "Q5_K_M", "ram-Q5_K_M.gguf"),
        }

    def digest(self) -> str:
        """Of all files and links: names, contents, modes and times."""
        whole = hashlib.sha256()
        for path in sorted(self.home.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            line = f"{path} {status.st_mode} {status.st_mtime_ns} {status.st_size} {os.path.islink(path)}"
            whole.update(line.encode() + content)
        return whole.hexdigest()
