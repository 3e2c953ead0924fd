"""Runs the array of docs/clusters.md on a Slurm of one node while tasks are killed and requeued, and compares.

    python scripts/slurm_array.py                     # 200 lines, ten accidents
    python scripts/slurm_array.py --lines 40 --accidents 2

Needs root and Debian's packages slurm-wlm and munge. Says what it saw as one JSON document. Fails unless the merged
output is byte for byte that of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "clusters.md"
PARTS = 7
DAEMONS = ("munged", "slurmctld", "slurmd")
CONFIGURATION = """
ClusterName=leap
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=1
SchedulerParameters=sched_interval=1,requeue_delay=0
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def lacking() -> str | None:
    """What this machine lacks for a Slurm of its own."""
    missing = [name for name in (*DAEMONS, "sbatch") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    return None if os.geteuid() == 0 else "only root can start it"


def array_script() -> str:
    """The script of the page."""
    (script,) = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return str(script)


class Slurm:
    """A Slurm of one node, whose files are in a directory of its own. A context manager."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="leap-slurm-"))
        self.environment = {**os.environ, "SLURM_CONF": str(self.place / "slurm.conf")}

    def __enter__(self) -> Slurm:
        place, host = self.place, socket.gethostname().partition(".")[0]
        for name in ("state", "spool"):
            (place / name).mkdir()
        (place / "slurm.conf").write_text(CONFIGURATION.format(place=place, host=host, ports=_free_ports()))
        key = place / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {"key-file": key, "socket": "munge.socket", "pid-file": "munged.pid", "log-file": "munged.log"}
        options = [f"--{name}={place / file}" for name, file in {**files, "seed-file": "munge.seed"}.items()]
        try:
            for command in (["munged", "--force", *options], ["slurmctld", "-c"], ["slurmd"]):
                self.run(*command)
            deadline = time.monotonic() + 30
            while "idle" not in self.run("sinfo", "--noheader", "--format=%T"):
                if time.monotonic() > deadline:
                    raise RuntimeError("the node does not come up")
                time.sleep(0.1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(DAEMONS):
            with suppress(OSError, ValueError):
                os.kill(int((self.place / f"{daemon}.pid").read_text()), signal.SIGTERM)
        time.sleep(0.5)
        shutil.rmtree(self.place, ignore_errors=True)

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """What a command of Slurm says."""
        done = subprocess.run(command, env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def tasks(self, id: str) -> dict[str, str]:
        """The states of an array's tasks that have not ended."""
        lines = self.run("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        return {name: state for name, state in map(str.split, lines) if name.startswith(f"{id}_")}


def run_array(
    place: Path, lines: int, accidents: int, seed: int = 1, kinds: tuple[str, ...] = ("killed", "requeued")
) -> dict[str, object]:
    """Run the array over so many lines in ``place``, with so many tasks killed or requeued, and compare its merged
    output with that of one run. Slurm lets a requeued task wait for two minutes."""
    chance = random.Random(seed)
    (place / "in.jsonl").write_text(
        "".join(json.dumps({"id": f"id-{n}", "prompt": f"Say {n}.", "max_tokens": 8}) + "\n" for n in range(lines))
    )
    flags = ["--format", "plain", "--temperature", "0"]
    (place / "array.sh").write_text(re.sub(r"--shard", f"{' '.join(flags)} --shard", array_script()))
    leap = [sys.executable, "-m", "leap_cli", "batch", "in.jsonl", "-m", "builtin", "-q", *flags]
    happened = dict.fromkeys(kinds, 0)
    started = time.monotonic()
    with Slurm() as slurm:
        slurm.environment["PATH"] = f"{Path(sys.executable).parent}:{slurm.environment['PATH']}"
        id = slurm.run("sbatch", "--parsable", "array.sh", cwd=place).strip()
        while tasks := slurm.tasks(id):
            running = [name for name, state in tasks.items() if state == "RUNNING"]
            if sum(happened.values()) < accidents and running:
                task = chance.choice(running)
                how = chance.choice(kinds)
                with suppress(RuntimeError):  # it has ended meanwhile
                    command = ["scancel", "--full", "--signal=KILL"] if how == "killed" else ["scontrol", "requeue"]
                    slurm.run(*command, task)
                happened[how] += 1
            time.sleep(chance.uniform(0.2, 0.8))
        again = slurm.run("sbatch", "--parsable", "array.sh", cwd=place).strip()  # what a killed task left
        while slurm.tasks(again):
            time.sleep(0.2)
    seconds = time.monotonic() - started
    merged = subprocess.run([*leap, "-o", "out.jsonl", "--merge", str(PARTS)], cwd=place, check=False)
    subprocess.run([*leap, "-o", "one.jsonl"], cwd=place, check=True)
    equal = (place / "out.jsonl").read_bytes() == (place / "one.jsonl").read_bytes()
    return {"lines": lines, **happened, "seconds": round(seconds, 1), "exit_code": merged.returncode, "equal": equal}


def main() -> None:
    """Run it as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--accidents", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if (reason := lacking()) is not None:
        sys.exit(f"no Slurm can be started: {reason}")
    with tempfile.TemporaryDirectory() as place:
        seen = run_array(Path(place), given.lines, given.accidents, given.seed)
    print(json.dumps(seen, indent=2))
    sys.exit(0 if seen["equal"] and seen["exit_code"] == 0 else 1)


def _free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


if __name__ == "__main__":
    main()
