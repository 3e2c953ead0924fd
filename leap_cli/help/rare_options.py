"""Options that only ``--help-all`` shows for commands that have many: details of loading, sampling and jobs."""

from __future__ import annotations

import click

from ..framework.options import LeapOption
from ..framework.rare_names import OPTION

_NAMES = """
--chat-template --cpu-moe --host --mmproj --prompt-cache --queue --verbose

 --complete-json --extract --grammar --json-schema-multi --load
--on-overflow --param --play --raw --regex --save --save-template --speak --stream

--apply --calibrate --columns --confidence-threshold --low-confidence --orders --passes --readout --review-serve
--rows --strict-evidence

--max-tool-iterations --tool-choice --tool-search

--after --at --job-retries --missed --notify --priority --then --webhook
--webhook-data

--check --escalate-when --guard-model --journal --keep-fields --merge --ordered --quiet
--requests-per-minute --skip-invalid --tokens-per-minute --workers
"""
RARE = set(_NAMES.split())


def is_rare(option: click.Option) -> bool:
    """Whether only ``--help-all`` shows it. ``--device`` names GPUs under the heading Model, else a microphone."""
    is_gpu = "--device" in option.opts and isinstance(option, LeapOption) and option.heading == "Model"
    return is_gpu or getattr(option, "rare", False) or not {*RARE, OPTION}.isdisjoint(option.opts)
