"""Train `builtin-vl` or `builtin-audio` from nothing: `python scripts/builtin/train_builtin_media.py vl`.

Draws pictures, or plays notes, with questions about them; learns a tower and a text decoder together and writes both
as GGUF: the model and its projector. Needs the `train` extra. The same seed gives the same lessons; an interrupted run
goes on from its last checkpoint. The cards beside the models say how long it took.
"""

from __future__ import annotations

import argparse
import pickle
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from builtin_data import picture_lessons, sound_lessons
from builtin_data.export import write_gguf
from builtin_data.export_projector import write_audio, write_vision
from builtin_data.media_trainer import MediaTrainer
from builtin_data.tokenizer import Vocabulary

SEED = 41
FOLDER = Path(__file__).resolve().parents[2] / "leap_core" / "models" / "builtin"
MODELS = {
    "vl": (picture_lessons.vocabulary, picture_lessons.Pictures, write_vision, 1800),
    "audio": (sound_lessons.vocabulary, sound_lessons.Sounds, write_audio, 1500),
}
DESCRIPTION = "A tiny LFM2 that {} what leap's scripts generate; a demonstration and test model of leap."
WHAT = {"vl": "answers about pictures like", "audio": "answers about clips like"}


def kept_vocabulary(path: Path, model: str) -> Vocabulary:
    """Learned once for a run and kept beside its checkpoint."""
    if not path.exists():
        path.write_bytes(pickle.dumps(MODELS[model][0](random.Random(SEED))))
    kept: Vocabulary = pickle.loads(path.read_bytes())
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=list(MODELS))
    parser.add_argument("--work", type=Path, help="where checkpoints go; builtin-MODEL-training if not told")
    parser.add_argument("--output", type=Path, default=FOLDER, help="the folder to write both files to at the end")
    parser.add_argument("--start-from", type=Path, metavar="CHECKPOINT", help="go on from another run's weights")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    _, lessons_of, write_projector, usual_steps = MODELS[options.model]
    work = options.work or Path(f"builtin-{options.model}-training")
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    vocabulary = kept_vocabulary(work / "vocabulary.pickle", options.model)
    checkpoint = work / "checkpoint.pt"
    lessons = lessons_of(vocabulary.encoder(), options.seed)
    trainer = MediaTrainer(lessons, len(vocabulary.tokens), options.steps or usual_steps, options.seed)
    if options.start_from:
        trainer.start_from(options.start_from)
    if checkpoint.exists():
        trainer.restore(checkpoint)
        lessons.rng.seed(f"{options.seed}/{trainer.step}")
    began, average, extra_average = time.monotonic(), None, 0.0
    while trainer.step < trainer.steps:
        loss, extra = trainer.learn()
        average = loss if average is None else 0.95 * average + 0.05 * loss
        extra_average += 0.05 * (extra - extra_average)
        if trainer.step % 20 == 0:
            spent = f"{time.monotonic() - began:.0f} s, {time.process_time():.0f} s of a core"
            print(f"step {trainer.step} loss {average:.4f}, extra {extra_average:.4f}, {spent}", flush=True)
        if trainer.step % options.save_every == 0:
            trainer.save(checkpoint)
    name = f"leap built-in demo, {options.model}"
    stem = f"builtin-{options.model}"
    description = DESCRIPTION.format(WHAT[options.model])
    write_gguf(trainer.network, vocabulary, options.output / f"{stem}.gguf", name, description)
    write_projector(trainer.tower, options.output / f"mmproj-{stem}.gguf", name)


if __name__ == "__main__":
    main()
