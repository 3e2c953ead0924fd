"""Which types of weights give the same logits however a prompt is cut, with and without ``--deterministic``.

    python scripts/same_rows.py [MODEL.gguf ...]

Without a model one with random weights is made in each type. "=" says equal to the last bit to the whole prompt at
once; a number is the largest difference of a logit. Columns: the last position alone; pieces of 33; of 4; each position
alone; and three tokens one by one beside seven other sequences, against the same without them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from leap_core.inference.llama.context import AttentionSettings, LlamaContext
from leap_core.inference.llama.devices import describe
from leap_core.inference.llama.model import LlamaModel
from tests.support.random_models import Shape, write_random_model

SHAPE = Shape(4, 256, 4, 2, 512, frozenset(range(4)), 1024, 4096)
TYPES = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K"),
    *("IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4_MOE"),
)
LENGTH, OTHERS = 75, 7
PROMPT = [300 + (n * 7919) % 700 for n in range(LENGTH)]
CUTS = {
    "n-1, 1": [LENGTH - 1, 1],
    "33s": [33, 33, LENGTH - 66],
    "4s": [4] * (LENGTH // 4) + [LENGTH % 4],
    "1s": [1] * LENGTH,
}
AFTER = [LENGTH - 3, 1, 1, 1]


def models(directory: Path) -> Iterator[Path]:
    """The same random weights in each type that can be made."""
    whole = write_random_model(directory / "F32.gguf", SHAPE, "f32")
    for kind in TYPES:
        made = directory / f"{kind}.gguf"
        if kind != "F32":
            command = [
                "-m",
                "leap_cli",
                "models",
                "quantize",
                str(whole),
                "--to",
                kind,
                "--option",
                "pure",
                "-o",
                str(made),
            ]
            if subprocess.run([sys.executable, *command], capture_output=True, check=False).returncode:
                print(f"{kind}: this build of llama.cpp does not make it", file=sys.stderr)
                continue
        yield made


def logits(context: LlamaContext, cuts: Sequence[int], others: int = 0) -> np.ndarray:
    """The logits after the prompt, computed in pieces, each beside the same piece of other sequences."""
    for sequence in range(context.slots):
        context.forget(sequence)
    found = None
    for end, count in zip(accumulate(cuts), cuts, strict=True):
        piece = PROMPT[end - count : end]
        runs = range(others + 1)
        for group in [[run] for run in runs] if context.exact else [list(runs)]:
            context.clear()
            indices = [context.add(run, end - count, piece, output=True) for run in group]
            if context.decode() != 0:
                raise SystemExit("llama.cpp did not compute a piece")
            if group[0] == 0:
                found = context.logits(indices[0]).copy()
    assert found is not None
    return found


def row(path: Path, *, exact: bool) -> str:
    """The line of one file."""
    model = LlamaModel(path)
    context = LlamaContext(
        model,
        cells=2048,
        slots=OTHERS + 1,
        batch_size=1024,
        threads=2,
        attention=AttentionSettings(type_k="bf16"),
        exact=exact,
    )
    whole = logits(context, [LENGTH])
    pairs = [(name, whole, logits(context, cuts)) for name, cuts in CUTS.items()]
    pairs.append(("beside 7", logits(context, AFTER), logits(context, AFTER, OTHERS)))
    context.close()
    model.close()
    shown = (f"{name} {'=' if (one == other).all() else f'{abs(one - other).max():.2g}'}" for name, one, other in pairs)
    return f"{path.stem:12} {'exact  ' if exact else 'default'}  {'   '.join(shown)}"


def main() -> None:
    print(" ".join(describe()["features"]))
    with tempfile.TemporaryDirectory() as directory:
        for path in [Path(name) for name in sys.argv[1:]] or models(Path(directory)):
            for exact in (False, True):
                print(row(path, exact=exact), flush=True)


if __name__ == "__main__":
    main()
