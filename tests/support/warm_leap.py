"""``leap`` without its start, for tests of many short commands: a server that has imported it forks for each.

    python warm_leap.py serve SOCKET           ends when its standard input does
    python -IS warm_leap.py SOCKET ARGUMENT...

A command has its own process, directory, environment and open files, as one started by a shell has. What is about the
start itself, signals, limits or terminals is tested on the program (``LEAP`` of tests/end_to_end/conftest.py).
"""

import marshal
import os
import signal
import socket
import sys
from contextlib import suppress

MOST_FILES = 64
SPARE = 500
"""File descriptors from here on are free in the server."""


def ask(place: str, arguments: list[str]) -> None:
    """Have the server run a command, and end as it ended."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        numbers = [number for number in map(int, os.listdir("/proc/self/fd")) if _is_handed_on(number)]
        request = marshal.dumps((arguments, dict(os.environ), os.getpgid(0), numbers))
        directory = os.open(".", os.O_RDONLY)
        socket.send_fds(server, [len(request).to_bytes(8, "big")], [directory, *numbers])
        server.sendall(request)
        answer = b""
        while len(answer) < 4 and (part := server.recv(4 - len(answer))):
            answer += part
    status = int.from_bytes(answer, "big")
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) if answer else 70)


def _is_handed_on(number: int) -> bool:
    """Whether a program that this process becomes would have this file open."""
    try:
        return os.get_inheritable(number)
    except OSError:  # that of the listing itself
        return False


def serve(place: str) -> None:
    """Fork for each command that is asked for, until standard input ends."""
    import selectors

    _import_leap()
    watched = selectors.DefaultSelector()
    running: dict[int, tuple[int, socket.socket]] = {}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(64)
        watched.register(listener, selectors.EVENT_READ)
        watched.register(0, selectors.EVENT_READ)
        while True:
            for key, _ in watched.select():
                if key.fileobj == 0:
                    os._exit(0)
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    request, files = _received(connection)
                    if not (pid := os.fork()):
                        for each in (listener, connection, watched, *(other for _, other in running.values())):
                            each.close()
                        for end in running:
                            os.close(end)
                        _become(*request, files)
                    for file in files:
                        os.close(file)
                    end = os.pidfd_open(pid)
                    running[end] = pid, connection
                    watched.register(end, selectors.EVENT_READ)
                elif key.fd in running:
                    watched.unregister(key.fd)
                    pid, connection = running.pop(key.fd)
                    os.close(key.fd)
                    with connection:
                        status = os.waitpid(pid, 0)[1]
                        with suppress(OSError):  # whoever asked was killed
                            connection.sendall(status.to_bytes(4, "big"))


def _received(connection: socket.socket) -> tuple[tuple, list[int]]:
    head, files, _, _ = socket.recv_fds(connection, 8, MOST_FILES)
    request = b""
    while len(request) < int.from_bytes(head, "big"):
        request += connection.recv(1 << 16)
    return marshal.loads(request), files


def _become(arguments: list[str], variables: dict[str, str], group: int, numbers: list[int], files: list[int]) -> None:
    """Run the command in this process, its ``files`` at these ``numbers``, and end."""
    import fcntl
    import traceback

    code = 70
    try:
        with suppress(OSError):  # a group of another session
            os.setpgid(0, group)
        os.fchdir(files[0])
        spare = [fcntl.fcntl(file, fcntl.F_DUPFD, SPARE) for file in files[1:]]
        for file in {0, 1, 2, *files}:
            os.close(file)
        for file, number in zip(spare, numbers, strict=True):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(variables)
        sys.argv = ["leap", *arguments]
        sys.stdin = sys.__stdin__ = open(0) if 0 in numbers else None  # noqa: SIM115
        sys.stdout = sys.__stdout__ = open(1, "w") if 1 in numbers else None  # noqa: SIM115
        sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace") if 2 in numbers else None  # noqa: SIM115
        from leap_cli.main import run

        run()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, AttributeError):
            sys.stdout.flush()
        os._exit(code)


def _import_leap() -> None:
    """Import what most commands need, all that has no threads yet."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads would not survive a fork
    from importlib import import_module

    import click

    from leap_cli.command_table import COMMANDS, command_line

    for name in COMMANDS:
        command_line.get_command(click.Context(command_line), name)
    for name in (
        *("leap_core.opening", "leap_core.inference.runner", "leap_core.protocols.host.model_host", "jobs.client"),
        *("leap_core.inference.trial.verdicts", "leap_core.conversation.session_recorder", "leap_core.batch.run"),
        *("leap_cli.answers.one_shot", "leap_cli.framework.help_text", "leap_cli.framework.option_defaults"),
        *("llama_cpp", "llguidance", "jsonschema", "jinja2", "numpy", "tomlkit", "httpx", "uuid", "sqlite3"),
    ):
        import_module(name)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        ask(sys.argv[1], sys.argv[2:])
