"""A LoRA adapter trained over a checkpoint directory, by transformers and peft; then converted and compared.

Data are lines of ``leap export --for-training``: {"prompt", "completion", "loss"}, or {"messages", "tools"}. The loss
counts what the model wrote, and nothing else: in a conversation every answer whose OpenAI ``weight`` is not 0.
Everything on the way is kept beside the adapter, in ``ADAPTER.training``: the same call resumes there, after
Ctrl-C and kill -9.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import shutil
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import LeapError, LeapOptionsError, LeapSerializationError, LeapUnavailableError
from ...models.conversion.adapters import convert_adapter
from ...models.conversion.checkpoint import read_checkpoint, read_family
from ...models.conversion.converting import convert_text
from ...models.conversion.quantizing import Making
from ...schemas.json_values import JsonObject, list_at, object_at, text_at
from ...system.dataclass import dataclass
from ...system.files import replace_text

LEAST_EXAMPLES = 8
HELD_BACK = 0.1
"""Of the examples, on which training is stopped where it gets no better."""
MOST_TOKENS = 2048
PATIENCE = 3
BYTES_A_WEIGHT = 4
OVERHEAD = 1.35
"""Of memory beside the weights: the library, activations of one example, the adapter and its moments."""
TOLERANCE = 1e-3
"""Of ``Trained.difference``."""

WRITER = "inline_container"
"""In what torch raises where it cannot write a file."""

OnStep = Callable[[int, int, str], object]
"""Steps done, of how many, and a sentence."""


@dataclass(frozen=True)
class TrainingSettings:
    """What is to be trained. ``checkpoint``: a directory as transformers reads it. ``epochs``: at most."""

    data: Path
    checkpoint: Path
    target: Path
    rank: int = 8
    alpha: int = 16
    epochs: int = 10
    rate: float = 1e-3
    batch: int = 8
    seed: int = 1

    @property
    def directory(self) -> Path:
        """What is kept on the way."""
        return self.target.with_name(f"{self.target.name}.training")

    @property
    def identity(self) -> str:
        """Of what is trained: another one begins anew."""
        how = [self.rank, self.alpha, self.epochs, self.rate, self.batch, self.seed]
        files = [[each.name, each.stat().st_size] for each in sorted(self.checkpoint.iterdir())]
        digest = hashlib.sha256(json.dumps([how, files]).encode())
        digest.update(self.data.read_bytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Trained:
    """``losses``: on the part that was held back, before and after. ``difference``: how far logits of the converted
    adapter in llama.cpp are from those of torch behind one held-back example, as a share of the largest."""

    target: Path
    examples: int
    steps: int
    losses: tuple[float, float]
    difference: float


def forecast(checkpoint: Path) -> int:
    """Bytes of memory that training will take, about. Raises LeapModelLoadingError for a directory that is none."""
    read_family(checkpoint)
    weights = sum(math.prod(tensor.shape) for tensor in read_checkpoint(checkpoint).values())
    return int(weights * BYTES_A_WEIGHT * OVERHEAD) + 512 * 1024**2


def check(settings: TrainingSettings, available: int | None) -> int:
    """The bytes that it will take. Raises LeapUnavailableError without the libraries, LeapOptionsError where they are
    more than are ``available``, and what is wrong with the data."""
    _libraries()
    needed = forecast(settings.checkpoint)
    if available is not None and needed > available:
        raise LeapOptionsError(
            "model", f"training takes about {needed // 1024**2} MiB of memory, and {available // 1024**2} MiB are free"
        )
    read_examples(settings.data)
    return needed


def _libraries() -> tuple[Any, Any, Any]:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        import peft
        import torch
        import transformers
    except ImportError as error:
        raise LeapUnavailableError(
            f"training needs libraries: {error.name} is not there", hint="pip install 'leap-edge[train]'"
        ) from None
    return torch, transformers, peft


def read_examples(path: Path) -> list[JsonObject]:
    """The examples of a file. Raises LeapSerializationError for too few, and for what is none."""
    try:
        lines = path.read_text("utf-8-sig").split("\n")  # U+2028 and the like are characters of a line
    except (OSError, UnicodeDecodeError) as error:
        raise LeapSerializationError(f"cannot read {path.name}: {error}") from None
    examples: list[JsonObject] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = object_at(json.loads(line), "line")
            if "messages" in value:
                said = list_at(value["messages"], "messages")
                if len(said) < 2 or said[-1].get("role") != "assistant":
                    raise LeapSerializationError("it does not end with an answer", path="messages")
                list_at(value.get("tools") or [], "tools")
            else:
                text_at(value.get("prompt"), "prompt")
                text_at(value.get("completion"), "completion")
        except (LeapError, ValueError, AttributeError, RecursionError) as error:
            raise LeapSerializationError(f"{path.name}, line {number}: {error}") from None
        examples.append(value)
    if len(examples) < LEAST_EXAMPLES:
        raise LeapSerializationError(f"{path.name} has {len(examples)} examples; {LEAST_EXAMPLES} are the fewest")
    return examples


def encoded(example: JsonObject, tokenizer: Any) -> list[JsonObject]:
    """The tokens of an example's texts, MOST_TOKENS at most, and ``labels``: those that the loss counts, -100 for the
    others. An answer that does not end within them does not count. ``is_cut``: the text is longer."""
    if "messages" in example:
        texts = _texts_of(example["messages"], example.get("tools") or None, tokenizer)
    else:
        text = example["prompt"] + example["completion"]
        texts = [(text, example.get("loss") or [(len(example["prompt"]), len(text))])]
    found = []
    for text, spans in texts:
        made = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        tokens, offsets = made["input_ids"][:MOST_TOKENS], made["offset_mapping"][:MOST_TOKENS]
        whole = [(first, last) for first, last in spans if offsets and last <= offsets[-1][1]]
        counted = [any(start >= first and end <= last for first, last in whole) for start, end in offsets]
        labels = [token if each else -100 for token, each in zip(tokens, counted, strict=True)]
        found.append({"input_ids": tokens, "labels": labels, "is_cut": len(made["input_ids"]) > MOST_TOKENS})
    return found


def _texts_of(messages: Sequence[JsonObject], tools: Any, tokenizer: Any) -> list[tuple[str, list[tuple[int, int]]]]:
    """A conversation as text with the spans of its answers; several texts where the template shows earlier answers in
    another way than they were written."""

    def rendered(count: int, *, asks: bool) -> str:
        plain = [{key: value for key, value in each.items() if key != "weight"} for each in messages[:count]]
        return str(tokenizer.apply_chat_template(plain, tools=tools, tokenize=False, add_generation_prompt=asks))

    texts: list[tuple[str, list[tuple[int, int]]]] = []
    for n, message in enumerate(messages):
        if message.get("role") != "assistant" or message.get("weight") == 0:
            continue
        prompt, text = rendered(n, asks=True), rendered(n + 1, asks=False).rstrip()
        if not text.startswith(prompt):
            raise LeapSerializationError("the chat template shows an answer in another way than it asks for one")
        span = (len(prompt), len(text))
        if texts and prompt.startswith(texts[-1][0]):
            texts[-1] = text, [*texts[-1][1], span]
        else:
            texts.append((text, [span]))
    return texts


def read_data(
    settings: TrainingSettings, tokenizer: Any, on_step: OnStep
) -> tuple[int, list[JsonObject], list[JsonObject]]:
    """The number of examples, the texts that are held back, and those to train on: those of one example are on one
    side. Raises LeapSerializationError where too few examples have an answer that counts."""
    examples = read_examples(settings.data)
    texts = [encoded(each, tokenizer) for each in examples]
    cut = sum(text.pop("is_cut") for each in texts for text in each)
    counted = [[text for text in each if any(label != -100 for label in text["labels"])] for each in texts]
    kept = [each for each in counted if each]
    if cut:
        on_step(0, 0, f"{cut} texts are longer than {MOST_TOKENS} tokens, and answers behind that are not trained on")
    if len(kept) < len(examples):
        on_step(0, 0, f"{len(examples) - len(kept)} of {len(examples)} examples have no answer to train on: left out")
    if len(kept) < LEAST_EXAMPLES:
        raise LeapSerializationError(
            f"{settings.data.name} has {len(kept)} examples with an answer to train on; {LEAST_EXAMPLES} are the fewest"
        )
    random.Random(settings.seed).shuffle(kept)
    held = max(1, int(len(kept) * HELD_BACK))
    return len(kept), [text for each in kept[:held] for text in each], [text for each in kept[held:] for text in each]


def _trainer(settings: TrainingSettings, tokenizer: Any, learnt: list[JsonObject], held: list[JsonObject]) -> Any:
    """The trainer of transformers, with an adapter of peft over the checkpoint."""
    torch, transformers, peft = _libraries()
    transformers.set_seed(settings.seed)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        settings.checkpoint, local_files_only=True, trust_remote_code=False, dtype=torch.float32
    )
    adapter = peft.LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    steps = max(1, (len(learnt) + settings.batch - 1) // settings.batch)
    arguments = transformers.TrainingArguments(
        output_dir=str(settings.directory),
        num_train_epochs=settings.epochs,
        learning_rate=settings.rate,
        per_device_train_batch_size=settings.batch,
        per_device_eval_batch_size=settings.batch,
        eval_strategy="steps",
        save_strategy="steps",
        eval_steps=steps,
        save_steps=steps,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        seed=settings.seed,
        data_seed=settings.seed,
        report_to=[],
        logging_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = transformers.Trainer(
        model=peft.get_peft_model(model, adapter),
        args=arguments,
        train_dataset=learnt,
        eval_dataset=held,
        data_collator=transformers.DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        callbacks=[transformers.EarlyStoppingCallback(early_stopping_patience=PATIENCE)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def train(settings: TrainingSettings, on_step: OnStep, stop: threading.Event) -> Trained | None:
    """Train the adapter, and write it as GGUF; None where it was stopped. Raises LeapError."""
    torch, transformers, peft = _libraries()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries among each other
        transformers.utils.logging.disable_progress_bar()
        directory = settings.directory
        _begin(directory, settings.identity)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            settings.checkpoint, local_files_only=True, trust_remote_code=False
        )
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        count, held, learnt = read_data(settings, tokenizer, on_step)
        trainer = _trainer(settings, tokenizer, learnt, held)
        trainer.add_callback(_callback(transformers, on_step, stop))
        before = _loss_before(directory, trainer)
        try:
            trainer.train(resume_from_checkpoint=bool(list(directory.glob("checkpoint-*"))) or None)
        except torch.cuda.OutOfMemoryError as error:
            raise LeapError(f"the GPU has too little memory: {error}") from None
        except RuntimeError as error:
            if WRITER not in str(error):
                raise
            hint = "free disk space: the same command resumes from the checkpoint before"
            raise LeapError(f"cannot write {directory}: the disk is full", hint=hint) from None
        if stop.is_set():
            return None
        after = float(trainer.evaluate()["eval_loss"])
        on_step(trainer.state.global_step, trainer.state.max_steps, "converting")
        adapter = directory / "adapter"
        trainer.model.save_pretrained(adapter)
        difference = _converted(settings, adapter, trainer.model, held[0]["input_ids"], torch)
    return Trained(settings.target, count, trainer.state.global_step, (before, after), difference)


def _begin(directory: Path, identity: str) -> None:
    """See to it that what is kept is of this training."""
    noted = directory / "identity"
    if directory.exists() and (not noted.exists() or noted.read_text("utf-8") != identity):
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if not noted.exists():
        replace_text(noted, identity)
    for each in directory.glob("checkpoint-*"):
        if not (each / "trainer_state.json").exists():  # a kill while it was written
            shutil.rmtree(each)


def _loss_before(directory: Path, trainer: Any) -> float:
    noted = directory / "before.json"
    if noted.exists():
        return float(json.loads(noted.read_text("utf-8")))
    loss = float(trainer.evaluate()["eval_loss"])
    replace_text(noted, json.dumps(loss))
    return loss


def _callback(transformers: Any, on_step: OnStep, stop: threading.Event) -> Any:
    class Callback(transformers.TrainerCallback):  # type: ignore[misc]  # transformers is not imported here
        def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> Any:
            on_step(state.global_step, state.max_steps, "")
            control.should_training_stop = control.should_training_stop or stop.is_set()
            return control

        def on_evaluate(self, _args: Any, state: Any, _control: Any, metrics: Any = None, **_: Any) -> None:
            if state.max_steps:  # not the look before the first step
                on_step(state.global_step, state.max_steps, f"loss {(metrics or {}).get('eval_loss', 0.0):.4f}")

    return Callback()


def _converted(settings: TrainingSettings, adapter: Path, model: Any, tokens: list[int], torch: Any) -> float:
    """Write the adapter as GGUF; how far the logits of llama.cpp are from torch's, over these tokens."""
    base = settings.directory / "base.gguf"
    if not base.exists():
        convert_text(settings.checkpoint, base, "F32", Making())
    convert_adapter(adapter, base, settings.target)
    model.eval()
    with torch.no_grad():
        trained = model(torch.tensor([tokens], device=model.device)).logits[0, -1].float().cpu().numpy()
    return float(abs(_last_logits(base, settings.target, tokens) - trained).max() / max(1.0, abs(trained).max()))


def _last_logits(base: Path, adapter: Path, tokens: list[int]) -> Any:
    """llama.cpp's logits behind these tokens, with an adapter, and all of it in float32."""
    from ...inference.llama.context import AttentionSettings, LlamaContext
    from ...inference.llama.model import LlamaAdapter, LlamaModel

    model = LlamaModel(base)
    exact = AttentionSettings(type_k="f32", type_v="f32")
    context = LlamaContext(model, cells=len(tokens) + 32, slots=1, batch_size=len(tokens), threads=1, attention=exact)
    try:
        context.set_adapters([(LlamaAdapter(adapter, model), 1.0)])
        index = context.add(0, 0, tokens, output=True)
        if context.decode() != 0:
            raise LeapError("llama.cpp did not compute the trained adapter")
        return context.logits(index).copy()
    finally:
        context.close()
        model.close()
