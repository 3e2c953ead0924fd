"""Options that only ``--help-all`` shows for commands that have many: details of loading, sampling and jobs."""

from __future__ import annotations

import click

from ..framework.options import LeapOption

_NAMES = """
--batch-size --chat-template --cpu-moe --deterministic --engine --flash-attention --host --kv-type-k --kv-type-v --mmap
--mmproj --n-cpu-moe --prompt-cache --prompt-cache-size --prompt-lookup --queue --tensor-split --threads --verbose

--audio-temperature --audio-top-k --frequency-penalty --logit-bias --min-p --presence-penalty --repeat-last-n
--repetition-detection --repetition-penalty --top-k --top-logprobs --top-p

--additional-properties --any-whitespace --complete-json --extract --extract-last --grammar --image-tiles --image-tokens
--json-schema-multi --load --on-overflow --param --play --raw --regex --repair --save --save-template
--schema-in-prompt --speak --stop --stream --think-budget --think-budget-message

--apply --calibrate --columns --confidence-threshold --low-confidence --orders --passes --readout --review-serve --rows
--strict-evidence

--max-tool-iterations --tool-call-parser --tool-choice --tool-search

--after --after-any --at --job-retries --max-workers --missed --notify --on-overlap --priority --then --webhook
--webhook-data

--check --escalate-when --guard-model --journal --keep-fields --keep-reasoning --merge --ordered --quiet
--requests-per-minute --skip-invalid --tokens-per-minute --workers
"""
RARE = set(_NAMES.split())


def is_rare(option: click.Option) -> bool:
    """Whether only ``--help-all`` shows it. ``--device`` names GPUs under the heading Model, else a microphone."""
    is_gpu = "--device" in option.opts and isinstance(option, LeapOption) and option.heading == "Model"
    return is_gpu or not RARE.isdisjoint(option.opts)
