"""Makes the model that the benchmarks run: LFM2-350M's shape and vocabulary size with random weights, at its cost.

python benchmarks/make_model.py bench-q4_0.gguf --type q4_0
python benchmarks/make_model.py encoder-q4_0.gguf --pooling cls
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness import SHORT

from tests.support.random_models import LFM2_350M, TINY_LFM2, EncoderShape, write_random_model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--type", choices=("q4_0", "q8_0", "f16"), default="q4_0")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--pooling", choices=("cls", "mean", "none"), help="make it an encoder")
    arguments = parser.parse_args()
    encoder = None if arguments.pooling is None else EncoderShape(arguments.pooling)
    write_random_model(
        arguments.path, TINY_LFM2 if SHORT else LFM2_350M, arguments.type, arguments.seed, encoder=encoder
    )
    print(f"{arguments.path}: {arguments.path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
