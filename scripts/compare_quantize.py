"""Hold `leap models quantize` against llama.cpp's llama-quantize, byte for byte and second for second.

python scripts/compare_quantize.py MODEL.gguf --program LLAMA_QUANTIZE [--to Q8_0,Q4_K_M] [--threads 2]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gguf import GGUFReader

from leap_core.models.conversion.quantizing import Making, QuantizeRequest, quantize_to_file

TEN = "F32,F16,BF16,Q8_0,Q4_0,Q4_1,Q5_0,Q5_1,Q4_K_M,Q5_K_M,IQ4_NL"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--program", required=True)
    parser.add_argument("--to", default=TEN)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    failed = False
    for to in options.to.split(","):
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = Path(folder) / "ours.gguf", Path(folder) / "theirs.gguf"
            start = time.perf_counter()
            request = QuantizeRequest(to, options.threads, requantize=True)
            quantize_to_file(options.model, ours, request, Making())
            between = time.perf_counter()
            command = [options.program, "--allow-requantize", options.model, theirs, to, str(options.threads)]
            subprocess.run(command, check=True, capture_output=True)
            end = time.perf_counter()
            left, right = ({t.name: t for t in GGUFReader(path).tensors} for path in (ours, theirs))
            same = left.keys() == right.keys() and all(
                left[n].tensor_type == right[n].tensor_type and left[n].data.tobytes() == right[n].data.tobytes()
                for n in left
            )
            failed |= not same
            seconds = between - start, end - between
            print(
                f"{to}: {len(left)} tensors {'equal' if same else 'DIFFER'}; "
                f"leap {seconds[0]:.2f} s, program {seconds[1]:.2f} s"
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
