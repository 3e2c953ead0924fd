"""What the child process does with a file: a model, an adapter, a projector or a voice is loaded and used."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...conversation.media.audio import LEAST_SECONDS, RATE
from ...conversation.media.image_plan import SIDE
from ...conversation.messages import ChatMessage
from ...conversation.options import GenerationOptions, ModelLoadingOptions
from ...conversation.streams import last_of
from ...errors import LeapError, LeapGenerationError, LeapModelLoadingError
from ..embedding_runner import most_tokens_for
from ..gguf.checks import check_adapter, check_projector
from ..gguf.header import read_gguf_header
from ..llama.context import LlamaContext
from ..llama.devices import describe
from ..llama.embedding_context import EmbeddingContext
from ..llama.library import run_folder
from ..llama.model import LlamaAdapter, LlamaModel
from ..llama.projector import Projector
from ..model_parts import context_size_for, open_context, open_model
from ..template.chat_template import ChatTemplate
from ..voice import open_voice
from .trial_child import ADAPTER, AUDIO_DECODER, MODEL, PROJECTOR, TEMPLATE_STAGE

CELLS = 1024
THREADS = 1
"""Several wait for each other by spinning, for seconds where other processes compute too."""
PROMPT_TOKENS = 24
"""So many that matrices are multiplied in blocks, as with a prompt, and then one at a time, as with an answer."""
LONG_PROMPT = 600
"""More tokens than a GPU computes at once."""
EVERY_KIND_OF_TEXT = "Hello, world! 12345 + 67.8 = ?\n\n\tif (x) { y[0]; }  été Straße Привет 你好 こんにちは 한국어 🙂"
CONVERSATION = [ChatMessage("system", "Be brief."), ChatMessage("user", "Hello!"), ChatMessage("assistant", "Hello.")]
QUESTION = ChatMessage("user", "What is 1 + 1?")
QUESTION_OF_ENGINE, ANSWER_OF_ENGINE = "What is the capital of France?", "Paris"


def try_file(request: dict[str, Any], answer: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Do with a file what leap does with its kind later; what was seen. ``answer`` gets each step before it is done."""

    def stage(name: str, **facts: Any) -> None:
        answer({"stage": name, "facts": facts})

    beside = {kind: Path(path) for kind, path in request["beside"].items()}
    return TRIALS[request["kind"]](Path(request["path"]), beside, stage)


def try_model(path: Path, beside: Mapping[str, Path], stage: Callable[..., None]) -> dict[str, Any]:
    """Do with a model what leap does with it. Returns what was seen; raises LeapError for a model that llama.cpp
    refuses."""
    stage("loading")
    start = time.monotonic()
    model = LlamaModel(path)
    loaded = time.monotonic()
    stage("reading its vocabulary", load_seconds=round(loaded - start, 3))
    for token in range(model.n_tokens):
        model.piece(token)
    stage("cutting text into tokens")
    tokens = short_prompt(model)
    model.tokenize("".join(model.special_tokens)[:10_000], parse_special=True)
    options = ModelLoadingOptions()
    stage("allocating the context")
    context = LlamaContext(model, cells=CELLS, slots=1, batch_size=options.batch_size, threads=THREADS)
    stage("computing")
    start = time.monotonic()
    finite = decode_shortly(context, tokens)
    facts = {
        "prompt_tokens": len(tokens),
        "compute_seconds": round(time.monotonic() - start, 3),
        "memory_bytes": _peak_memory(),
        "answers_numbers": finite,
        "has_template": model.chat_template is not None,
        "can_generate": model.can_generate,
    }
    stage(TEMPLATE_STAGE, **facts, template_ends_process=True)
    return {"template_problem": _render(model), "template_ends_process": False}


def try_engine(request: dict[str, Any], answer: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Load the build of llama.cpp in ``folder`` and let ``model`` answer with it; what is to be known of the build.
    Raises LeapModelLoadingError for one that computes wrongly."""
    from ..runner import InProcessRunner

    answer({"stage": "loading its libraries"})
    run_folder(Path(request["folder"]))
    facts = describe()
    answer({"stage": "answering with the built-in model"})
    runner = InProcessRunner(Path(request["model"]), "builtin", ModelLoadingOptions(slots=1, cpu_threads=THREADS))
    text = last_of(runner.create_conversation().generate_response(QUESTION_OF_ENGINE)).full_message.text
    if ANSWER_OF_ENGINE not in text:
        raise LeapModelLoadingError(f"this build computes wrongly: the built-in model answers {text[:60]!r}")
    return facts


def try_layers(request: dict[str, Any], answer: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Load a model with its layers where they are wanted, and compute a long prompt."""
    options, path = ModelLoadingOptions(**request["options"]), Path(request["path"])
    model = open_model(path, options)
    if not model.can_generate:
        pooling, size = model.pooling or "mean", most_tokens_for(model, path.stem, options.context_size)
        flash = options.flash_attention
        texts = EmbeddingContext(model, pooling=pooling, most_tokens=size, most_texts=1, threads=1, flash=flash)
        texts.embed([[0] * size])
        return {}
    context = open_context(model, options, context_size_for(model, path.stem, options.context_size))
    context.clear()
    context.add(0, 0, [0] * min(LONG_PROMPT, context.batch_size, context.cells - 1), output=True)
    context.decode()
    return {}


def short_prompt(model: LlamaModel) -> list[int]:
    """A prompt of ordinary text, with the vocabulary's first and last token in it."""
    tokens = model.tokenize(EVERY_KIND_OF_TEXT, parse_special=True)
    tokens += [0, model.n_tokens - 1]
    return (tokens * PROMPT_TOKENS)[:PROMPT_TOKENS]


def decode_shortly(context: LlamaContext, tokens: list[int]) -> bool:
    """A prompt, then two tokens one after the other; whether the last logits are numbers."""
    import numpy as np

    context.clear()
    index = context.add(0, 0, tokens, output=True)
    _run(context)
    for position in (len(tokens), len(tokens) + 1):
        token = int(np.argmax(context.logits(index)))
        context.clear()
        index = context.add(0, position, [token], output=True)
        _run(context)
    return bool(np.isfinite(context.logits(index)).all())


def _run(context: LlamaContext) -> None:
    code = context.decode()
    if code != 0:
        raise LeapGenerationError(f"llama.cpp cannot decode a short prompt (code {code})")


def _render(model: LlamaModel) -> str | None:
    """What is wrong with the chat template, or None."""
    source = model.chat_template
    if source is None:
        return None
    try:
        template = ChatTemplate(
            source, bos_text=model.bos_text, eos_text=model.eos_text, special_texts=model.special_tokens
        )
        for messages in ([QUESTION], [*CONVERSATION, QUESTION]):
            pieces = template.render(messages)
            model.tokenize("".join(piece for piece in pieces if isinstance(piece, str)), parse_special=True)
    except LeapError as error:
        return error.message
    return None


def _peak_memory() -> int | None:
    """Bytes; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def try_adapter(path: Path, beside: Mapping[str, Path], stage: Callable[..., object]) -> dict[str, Any]:
    """Compute with the adapter at ``path``; ``beside`` names its model. Raises LeapModelLoadingError for one that
    llama.cpp refuses or whose answers are no numbers."""
    check_adapter(read_gguf_header(path), read_gguf_header(beside["model"]))
    stage("loading the model")
    model = LlamaModel(beside["model"])
    tokens = short_prompt(model)
    context = LlamaContext(model, cells=CELLS, slots=1, batch_size=ModelLoadingOptions().batch_size, threads=THREADS)
    sound = decode_shortly(context, tokens)
    stage("loading the adapter")
    adapter = LlamaAdapter(path, model)
    stage("computing with the adapter")
    context.forget(0)
    context.set_adapters([(adapter, 1.0)])
    if not decode_shortly(context, tokens) and sound:
        raise LeapModelLoadingError(f"{path} makes answers that are not finite; it is damaged")
    return {"finite": sound}


WIDTH, HEIGHT = 3 * SIDE, 2 * SIDE


def try_projector(path: Path, beside: Mapping[str, Path], stage: Callable[..., object]) -> dict[str, Any]:
    """Encode with the projector at ``path``; ``beside`` names its model. Returns what it takes."""
    import numpy as np

    info = check_projector(read_gguf_header(path))
    stage("loading the model")
    model = LlamaModel(beside["model"])
    if info.width != model.width:
        raise LeapModelLoadingError(
            f"{path} makes embeddings of width {info.width}, and {model.path.name} has {model.width}",
            hint="take the projector that belongs to this model",
        )
    projector = Projector(path, model, threads=1)
    if info.sees:
        stage("encoding a picture")
        _check_finite(path, projector.encode_image(WIDTH, HEIGHT, bytes(range(256)) * (WIDTH * HEIGHT * 3 // 256)))
    if info.hears:
        stage("encoding sound")
        noise = np.random.default_rng(1).uniform(-0.1, 0.1, int(LEAST_SECONDS * RATE))
        _check_finite(path, projector.encode_audio(noise.astype(np.float32)))
    return {"sees": info.sees, "hears": info.hears}


def _check_finite(path: Path, rows: Any) -> None:
    import numpy as np

    if not np.isfinite(rows).all():
        raise LeapModelLoadingError(f"{path} makes embeddings that are not finite; it is damaged")


FRAMES = 3


def try_voice(path: Path, beside: Mapping[str, Path], stage: Callable[..., object]) -> dict[str, Any]:
    """Speak with the vocoder at ``path``; ``beside`` names its model, and its audio tokenizer where that is another
    file. Raises LeapModelLoadingError for files that cannot be used."""
    import numpy as np

    stage("loading the model")
    model = LlamaModel(beside["model"])
    stage("opening the vocoder")
    voice = open_voice(path, beside.get("audio_tokenizer"), model)
    speech, listener = voice.begin(GenerationOptions(rng_seed=1), interleaved=False)
    stage("making frames")
    hidden = np.random.default_rng(1).standard_normal((1, model.width), dtype=np.float32)
    frames = [speech.source.frames(hidden, [speech.sampler], 1)[0] for _ in range(FRAMES)]
    for frame in frames:
        speech.source.embedding(frame)
    stage("making sound")
    samples = []
    for frame in frames:
        speech.sound.add(frame, last=False)
        samples += listener.take_frame(frame)
    samples += listener.end()
    return {"samples": sum(len(sample.samples) for sample in samples), "warning": voice.warning}


TRIALS: dict[str, Callable[[Path, Mapping[str, Path], Callable[..., None]], dict[str, Any]]] = {
    MODEL: try_model,
    PROJECTOR: try_projector,
    ADAPTER: try_adapter,
    AUDIO_DECODER: try_voice,
}
