"""Three models and a damaged one on a server with memory for two: requests of eight clients in random order.

    python scripts/models_on_demand.py                    # 200 requests
    python scripts/models_on_demand.py --requests 40

The models are copies of the built-in one, in a fresh LEAP_HOME, behind the whole application in this process. It
prints what it saw as one JSON document, and ends with 1 unless every request was answered, or refused for the damaged
model, there were fewer loads than changes from one model to another, and memory stayed within the bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from leap_core.conversation.options import ModelLoadingOptions
from leap_core.models.builtin import model_path
from leap_core.models.resolving import LocalModel, resolve_local
from leap_core.opening import load_as_made, try_local
from leap_core.server.foreground import ServerSettings, application
from leap_core.server.models.abilities import Offer
from leap_core.server.models.loaded_models import Bounds, LoadedModels
from leap_core.system.processes import resident_bytes

NAMES = ("First-Q4_0", "Second-Q4_0", "Third-Q4_0", "Damaged-Q4_0")
CLIENTS = 8


def install(home: Path) -> None:
    """Put the models into the store."""
    for name in NAMES:
        directory = home / "models" / name
        directory.mkdir(parents=True)
        shutil.copy(model_path(), directory / f"{name}.gguf")
    damaged = home / "models" / NAMES[3] / f"{NAMES[3]}.gguf"
    os.truncate(damaged, damaged.stat().st_size // 2)


async def measure(count: int, seed: int) -> dict[str, Any]:
    """Send the requests, and say what came of them."""
    options = ModelLoadingOptions(slots=8, cpu_threads=1)
    load_as_made(resolve_local("builtin"), options).unload()  # the library's own memory is nobody's
    before = resident_bytes() or 0
    runner = load_as_made(resolve_local("First"), options)
    single = max((resident_bytes() or 0) - before, Path(model_path()).stat().st_size)
    runner.unload()
    bound = 2 * single
    loads: list[str] = []

    def load(local: LocalModel, loading: ModelLoadingOptions) -> Any:
        loads.append(local.model_id)
        return load_as_made(local, loading)

    offer = Offer(("*-Q4_0",), loading={"cpu_threads": 1})
    models = LoadedModels(load, try_local, offer=offer, bounds=Bounds(memory=bound))
    chance = random.Random(seed)
    asked = [chance.choice(NAMES) for _ in range(count)]
    todo, statuses, most = iter(asked), Counter[str](), [0, 0]

    async def client(http: httpx.AsyncClient) -> None:
        for name in todo:
            messages = [{"role": "user", "content": f"Say {chance.randrange(1000)}."}]
            body = {"model": name, "messages": messages, "max_tokens": chance.randrange(4, 24)}
            answer = await http.post("/v1/chat/completions", json=body)
            code = "" if answer.status_code == 200 else f" {answer.json()['error']['code']}"
            statuses[f"{'damaged' if name == NAMES[3] else 'sound'}: {answer.status_code}{code}"] += 1
            held = [model for model in models if model.state != "loading"]
            most[0] = max(most[0], len(held))
            most[1] = max(most[1], sum(model.memory or 0 for model in held))

    begun = time.monotonic()
    transport = httpx.ASGITransport(application(models, ServerSettings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=None) as http:
        await asyncio.gather(*(client(http) for _ in range(CLIENTS)))
    await models.close()
    changes = sum(1 for one, other in zip(asked, asked[1:], strict=False) if one != other)
    wrong = asked.count(NAMES[3])
    fine = statuses["sound: 200"] == count - wrong and sum(statuses.values()) == count
    return {
        "requests": count,
        "statuses": dict(statuses),
        "seconds": round(time.monotonic() - begun, 1),
        "changes_of_model": changes,
        "loads": len(loads),
        "most_loaded_at_once": most[0],
        "most_memory": most[1],
        "bound": bound,
        "as_documented": fine and len(loads) <= changes and most[1] <= bound,
    }


def main() -> int:
    """Run it; 0 when all is as documented."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--seed", type=int, default=38)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="leap-demand-", ignore_cleanup_errors=True) as home:
        os.environ["LEAP_HOME"] = home
        install(Path(home))
        report = asyncio.run(measure(settings.requests, settings.seed))
    json.dump(report, sys.stdout, indent=2)
    print()
    return 0 if report["as_documented"] else 1


if __name__ == "__main__":
    sys.exit(main())
