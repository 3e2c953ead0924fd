"""Temperatures of a model's decisions, fitted to labeled cases: ``leap decide --calibrate``."""

from __future__ import annotations

import json
from typing import Any

import click

from leap_core.errors import LeapError

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.output import Format, Output
from ..input.files import read_text_file
from ..options.loading import load_model, note_builtin
from ..options.tasks import TaskSettings


def fit_temperatures(
    fields: dict[str, Any], name: str, format: str, settings: TaskSettings, env: Environment
) -> ExitCode:
    """Fit, keep, and say how good the answers to cases held back are, before and after."""
    from leap_core.system.directories import Directories
    from leap_core.tasks.decisions.calibration import fit, keep
    from leap_core.tasks.decisions.deciding import cases_of
    from leap_core.tasks.task_fields import read_case

    output = Output(env, Format.JSON if format in ("json", "jsonl") else Format.TEXT)
    lines = [line for line in read_text_file(name, env).split("\n") if line.strip()]
    read = []
    for n, line in enumerate(lines, 1):
        try:
            read.append(read_case(fields, json.loads(line)))
        except (LeapError, ValueError) as error:
            reason = error.message if isinstance(error, LeapError) else f"not JSON: {error}"
            raise click.UsageError(f"--calibrate {name}, line {n}: {reason}") from None
    with load_model(env, settings.model) as runner:
        note_builtin(env, settings.model.name, output)
        cases = []
        for n, case in enumerate(read, 1):
            output.progress(f"case {n} of {len(read)}")
            decision, asked = case.put_to(runner)
            cases += cases_of(runner, decision, case.right, asked)
            way = case.way_of(runner)
        if not cases:
            raise click.UsageError(f"--calibrate {name} has no cases")
        found = fit(cases)
        fingerprint = runner.decision_model.fingerprint
        if not fingerprint:
            raise click.UsageError("--calibrate needs a local model file, to fingerprint its weights")
        path = keep(found, runner.model_id, fingerprint, way, Directories.from_environment(env.variables))
        record = {
            "model": runner.model_id,
            "readout": way,
            "temperatures": dict(found.temperatures),
            "fitted_cases": found.fitted_cases,
            "held_back_cases": found.after.cases,
            "accuracy": round(found.after.accuracy, 4),
            "ece_before": round(found.before.ece, 4),
            "ece_after": round(found.after.ece, 4),
            "log_loss_before": round(found.before.log_loss, 4),
            "log_loss_after": round(found.after.log_loss, 4),
            "file": str(path),
        }
    if output.format is Format.JSON:
        output.document(record)
    else:
        shown = {**record, "temperatures": ", ".join(f"{key} {value:.3g}" for key, value in found.temperatures.items())}
        output.record(shown, name="model")
    return ExitCode.DONE
