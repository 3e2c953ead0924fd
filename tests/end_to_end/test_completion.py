"""TAB, pressed in real shells: what then stands on the line is handed to printf, an argument a line."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leap_cli.completion.scripts import FILE_NAMES, script_of

from .conftest import install

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")

SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
PATIENCE = 100.0
BEGIN_OF_LINE, END_OF_LINE = "\x01", "\x05"
ESCAPES = re.compile(r"\x1b(\[[0-9;?>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>])")


class Terminal:
    """A shell that believes somebody is typing."""

    def __init__(self, shell: str, variables: dict[str, str], cwd: Path) -> None:
        self.shell = shell
        self._shown = ""
        self._waited_for = 0
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(cwd)
            os.execvpe(SHELLS[shell][0], SHELLS[shell], variables)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    @property
    def seen(self) -> str:
        """What has been shown since the last wait, without escape codes and with plain line ends."""
        return re.sub(r"[\r\n]+", "\n", ESCAPES.sub("", self._shown))[self._waited_for :]

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read until this has been shown; what was before it is forgotten."""
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.seen)) is None:
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{self.shell} never showed {pattern!r}, but: {self.seen!r}"
            self._shown += os.read(self._terminal, 65536).decode("utf-8", "replace")
        self._waited_for += found.end()
        return found

    def run(self, line: str) -> None:
        """Run a line, and wait until the next can be typed."""
        self.type(f"{line}; echo d'one'\r")
        self.wait_for(r"\ndone\n")

    def completed(self, typed: str) -> list[str]:
        """The arguments of the line after TAB was pressed at its end."""
        self.type(f"{typed}\t{BEGIN_OF_LINE}printf '<%s>\\n' {END_OF_LINE}; echo d'one'\r")
        found = self.wait_for(r"((?:\n<[^\n]*>)+)\ndone\n")
        return re.findall(r"<(.*)>", found[1])[1:]

    def listed(self, typed: str, *wanted: str) -> None:
        """Press TAB twice and wait until all of these are shown, in this order or another."""
        self.type(f"{typed}\t\t")
        self.wait_for("".join(rf"(?=[^$]*\b{re.escape(each)}\b)" for each in wanted))
        self.type("\x15\x03")
        self.run("true")

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)


@pytest.fixture
def home(tmp_path: Path, leap_home: Path, warm_leap: list[str]) -> Path:
    """A home with an installed model, and leap on its PATH."""
    install(warm_leap, tmp_path)
    for name in ("Mine-Q4_0", "Mine-Q8_0"):
        (leap_home / "models" / name).mkdir(parents=True)
        (leap_home / "models" / name / f"{name}.gguf").write_bytes(b"")
    (tmp_path / "a file.gguf").write_bytes(b"")
    (tmp_path / "prompts.jsonl").write_bytes(b"")
    return tmp_path


@pytest.fixture(params=SHELLS)
def terminal(request, home: Path, variables: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    """Opens a terminal with the shell; it completes leap when ``loading`` has been run."""
    shell = request.param
    if shutil.which(shell) is None:
        assert "CI" not in os.environ, f"{shell} has to be installed where CI runs"
        pytest.skip(f"{shell} is not installed")
    variables |= {
        "HOME": str(home),
        "PATH": f"{home / 'bin'}{os.pathsep}{variables['PATH']}",
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "200",
    }
    variables.pop("ZDOTDIR", None)
    variables.pop("XDG_CONFIG_HOME", None)
    opened: list[Terminal] = []

    def open_terminal(loading: str | None = None) -> Terminal:
        here = Terminal(shell, variables, home)
        opened.append(here)
        here.run("stty cols 200 rows 50")
        load = "leap completion fish | source" if shell == "fish" else f'eval "$(leap completion {shell})"'
        here.run(load if loading is None else loading)
        return here

    yield open_terminal
    for here in opened:
        here.close()


def test_tab_completes_each_kind_of_word(terminal, home):
    here = terminal()
    assert here.completed("leap gener") == ["generate"]
    assert here.completed("leap models verif") == ["models", "verify"]
    assert here.completed("leap generate --tempe") == ["generate", "--temperature"]
    assert here.completed("leap generate --format jsonl --no-st") == ["generate", "--format", "jsonl", "--no-stream"]
    assert here.completed("leap batch --format=pl") == ["batch", "--format=plain"]
    assert here.completed("leap generate -m LFM2.5-35") == ["generate", "-m", "LFM2.5-350M"]
    assert here.completed("leap generate -m lfm2.5-35") == ["generate", "-m", "LFM2.5-350M"]
    assert here.completed("leap generate -m LFM2.5-350M:Q8") == ["generate", "-m", "LFM2.5-350M:Q8_0"]
    assert here.completed("leap generate --model=LFM2.5-350M:Q8") == ["generate", "--model=LFM2.5-350M:Q8_0"]
    assert here.completed("leap generate -m 'LFM2.5-350M:Q8") == ["generate", "-m", "LFM2.5-350M:Q8_0"]
    assert here.completed("leap generate -m Mine:Q8") == ["generate", "-m", "Mine:Q8_0"]
    assert here.completed("leap models remove Mine-Q4") == ["models", "remove", "Mine-Q4_0"]
    assert here.completed("leap download LFM2.5-350M --quant q4_k") == ["download", "LFM2.5-350M", "--quant", "Q4_K_M"]
    assert here.completed("leap generate --tool calc") == ["generate", "--tool", "calculate"]
    assert here.completed("leap batch promp") == ["batch", "prompts.jsonl"]
    assert here.completed("leap batch --output=promp") == ["batch", "--output=prompts.jsonl"]
    assert here.completed("leap models import a") == ["models", "import", "a file.gguf"]
    assert here.completed("X=1 leap gener" if here.shell == "bash" else "leap gener") == (
        ["leap", "generate"] if here.shell == "bash" else ["generate"]
    )


def test_tab_twice_lists_the_candidates(terminal):
    here = terminal()
    here.listed("leap ", "generate", "chat", "batch", "models", "completion")
    here.listed("leap generate --format ", "text", "json", "jsonl")
    here.listed("leap generate -m ", "Mine-Q4_0", "builtin", "LFM2.5-350M")


def test_tab_after_a_wrong_command_prints_nothing(terminal):
    here = terminal()
    assert here.completed("leap frobnicate --form")[-1] == "--form"
    assert "Traceback" not in here.seen


def test_installed_completion_works_in_new_shells(terminal, home, variables):
    first = terminal("true")
    first.run(f"leap completion {first.shell} --install")
    first.run(f"leap completion {first.shell} --install")
    if first.shell == "fish":
        second = terminal("source ~/.config/fish/completions/leap.fish")
    else:
        start_file = home / f".{first.shell}rc"
        assert start_file.read_text().count("completion of leap") == 1
        second = terminal(f". ~/{start_file.name}")
    assert second.completed("leap gener") == ["generate"]


@pytest.mark.parametrize("terminal", ["zsh"], indirect=True)
def test_a_packagers_file_is_loaded_by_zsh(terminal):
    completions = Path(__file__).parent.parent.parent / "completions"
    here = terminal(f"fpath=('{completions}' $fpath); autoload -Uz compinit; compinit -u")
    assert here.completed("leap gener") == ["generate"]
    assert here.completed("leap models verif") == ["models", "verify"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_valid_in_its_shell(shell, tmp_path):
    if shutil.which(shell) is None:
        assert "CI" not in os.environ, f"{shell} has to be installed where CI runs"
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / FILE_NAMES[shell]
    script.write_text(script_of(shell))
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
