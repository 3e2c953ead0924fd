"""Builds of llama.cpp in which something is wrong."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path


def compiled(folder: Path, name: str, source: str, *flags: str) -> Path:
    """A library of C's ``source``."""
    target = folder / name
    done = subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", str(target), *flags],
        input=source,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


WRONG_LAYOUT = """
#include <string.h>
void llama_model_default_params(char *p) { memset(p, 1, %d); }
void llama_context_default_params(char *p) { memset(p, 1, %d); }
void ggml_backend_load_all_from_path(const char *p) {}
unsigned long ggml_backend_reg_count(void) { return 0; }
unsigned long ggml_backend_dev_count(void) { return 0; }
void llama_log_set(void *a, void *b) {}
"""


def mangle(kind: str, build: Path, tmp_path: Path) -> Path:
    """A wrong engine of this kind; what ``add`` is given."""
    llama = build / "libllama.so"
    if kind.startswith("cut "):
        for path in build.glob("libllama.so*"):
            data = path.read_bytes()
            path.write_bytes(data[: len(data) * int(kind.split()[1]) // 100])
    elif kind.startswith("cut-base "):
        for path in build.glob("libggml-base.so*"):
            data = path.read_bytes()
            path.write_bytes(data[: len(data) * int(kind.split()[1]) // 100])
    elif kind.startswith("without "):
        for path in build.glob(f"{kind.split()[1]}.*"):
            path.unlink()
    elif kind.startswith("text in "):
        for path in build.glob(f"{kind.split()[2]}.*"):
            path.write_text("no library\n")
    elif kind == "empty":
        for path in build.iterdir():
            path.unlink()
    elif kind == "empty files":
        for path in build.iterdir():
            path.write_bytes(b"")
    elif kind == "a file":
        return build / "libllama.so"
    elif kind == "nothing":
        return tmp_path / "not-there"
    elif kind == "another program":
        for path in build.iterdir():
            path.rename(path.with_name(path.name.replace("llama", "other")))
    elif kind == "another processor":
        for path in build.iterdir():
            data = bytearray(path.read_bytes())
            data[18:20] = (183 if platform.machine() == "x86_64" else 62).to_bytes(2, "little")
            path.write_bytes(data)
    elif kind in ("a Mac's", "Windows's"):
        for path in build.iterdir():
            path.write_bytes((b"\xcf\xfa\xed\xfe" if kind == "a Mac's" else b"MZ") + path.read_bytes()[4:])
    elif kind.startswith("layout "):
        for path in build.glob("libllama.so*"):
            path.unlink()
        sizes = tuple(map(int, kind.split()[1:]))
        compiled(build, "libllama.so", WRONG_LAYOUT % sizes)
    elif kind == "needs a newer glibc":
        for path in build.glob("libllama.so*"):
            path.unlink()
        compiled(
            build,
            "libllama.so",
            "extern void *not_of_this_world(void); void *f(void){return not_of_this_world();}",
            "-Wl,-z,now",
        )
    elif kind == "aborts at loading":
        for path in build.glob("libllama.so*"):
            path.unlink()
        compiled(build, "libllama.so", "#include <stdlib.h>\n__attribute__((constructor)) void f(void){abort();}")
    elif kind == "exits at loading":
        for path in build.glob("libllama.so*"):
            path.unlink()
        compiled(build, "libllama.so", "#include <stdlib.h>\n__attribute__((constructor)) void f(void){_Exit(0);}")
    elif kind == "mixed":
        for path in build.glob("libggml-base.so*"):
            path.unlink()
        compiled(build, "libggml-base.so.0", "int nothing;", "-Wl,-soname,libggml-base.so.0")
        shutil.copyfile(build / "libggml-base.so.0", build / "libggml-base.so")
    elif kind == "unreadable":
        llama.chmod(0)
        build.chmod(0)
    return build
