"""Hold leap's conversion of checkpoints against llama.cpp's convert_hf_to_gguf.py, tensor by tensor and key by key.

    python scripts/compare_conversion.py DIRECTORY --llama-cpp CHECKOUT --python PYTHON_WITH_TORCH [--to BF16,Q8_0]

DIRECTORY holds checkpoints, such as those of scripts/checkpoints.py. Made tokenizers have no known hash, so llama.cpp's
converter is handed the name that leap finds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from gguf import GGUFReader

from leap_core.models.conversion.checkpoint import read_family
from leap_core.models.conversion.converting import convert_projector, convert_text
from leap_core.models.conversion.quantizing import Making
from leap_core.models.conversion.vocabulary import read_vocabulary

PATCHED = """
import sys, runpy
sys.path.insert(0, {folder!r}); sys.path.insert(0, {folder!r} + "/gguf-py")
import conversion.base as base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: {pre!r}
sys.argv = ["convert_hf_to_gguf.py", *{arguments!r}]
runpy.run_path({folder!r} + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def differences(ours: Path, theirs: Path) -> list[str]:
    """What differs between two GGUFs."""
    mine, other = GGUFReader(ours), GGUFReader(theirs)
    found = []
    tensors, reference = ({each.name: each for each in reader.tensors} for reader in (mine, other))
    for name in sorted(tensors.keys() ^ reference.keys()):
        found.append(f"tensor {name} only in {'ours' if name in tensors else 'theirs'}")
    for name in sorted(tensors.keys() & reference.keys()):
        left, right = tensors[name], reference[name]
        if left.tensor_type != right.tensor_type or left.shape.tolist() != right.shape.tolist():
            kinds = (left.tensor_type.name, right.tensor_type.name)
            found.append(f"tensor {name}: {kinds[0]} {left.shape}, theirs {kinds[1]} {right.shape}")
        elif left.data.tobytes() != right.data.tobytes():
            found.append(f"tensor {name}: other bytes")
    for name in sorted(mine.fields.keys() | other.fields.keys()):
        if name.startswith("GGUF."):
            continue
        values = [reader.fields[name].contents() if name in reader.fields else None for reader in (mine, other)]
        if values[0] != values[1]:
            found.append(f"key {name}: {str(values[0])[:60]}, theirs {str(values[1])[:60]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--to", default="F32,F16,BF16,Q8_0")
    options = parser.parse_args()
    worst = 0
    for directory in sorted(path for path in options.directory.iterdir() if (path / "config.json").is_file()):
        family = read_family(directory)
        kinds = [("text", convert_text, []), ("projector", convert_projector, ["--mmproj"])]
        for kind, convert, flag in kinds[: 2 if family.sees else 1]:
            for to in options.to.split(","):
                ours, theirs = (directory / f"{kind}-{who}.gguf.tmp" for who in ("ours", "theirs"))
                convert(directory, ours, to, Making())
                arguments = [str(directory), "--outfile", str(theirs), "--outtype", to.lower(), *flag]
                pre = read_vocabulary(family).pre
                program = PATCHED.format(folder=str(options.llama_cpp), pre=pre, arguments=arguments)
                done = subprocess.run([options.python, "-c", program], capture_output=True, text=True)
                if done.returncode:
                    print(f"{directory.name} {kind} {to}: llama.cpp: {done.stderr.strip().splitlines()[-1]}")
                    continue
                found = differences(ours, theirs)
                worst = max(worst, len(found))
                count = len(GGUFReader(ours).tensors)
                print(f"{directory.name} {kind} {to}: {count} tensors, {len(found)} differences")
                for each in found:
                    print(f"    {each}")
                ours.unlink()
                theirs.unlink()
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
