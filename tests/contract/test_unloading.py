"""A model that is unloaded while somebody still reads with it."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from leap_core import ChatMessage, Leap, LeapGenerationError


def test_unload_waits_until_a_prompt_is_tokenized():
    runner = Leap.load("builtin")
    entered, go_on, ended = threading.Event(), threading.Event(), []
    tokenize = runner.model.tokenize

    def slowly(*args, **more):
        entered.set()
        go_on.wait(100)
        return tokenize(*args, **more)

    runner.model.tokenize = slowly

    def ask():
        try:
            ended.append(list(runner.start([ChatMessage("user", "Hello")])))
        except LeapGenerationError as error:
            ended.append(error.message)

    asking, unloading = threading.Thread(target=ask), threading.Thread(target=runner.unload)
    asking.start()
    assert entered.wait(100)
    unloading.start()
    time.sleep(0.1)
    assert unloading.is_alive() and runner.model.pointer is not None
    go_on.set()
    asking.join(100)
    unloading.join(100)
    assert ended == ["the model is unloaded"] and runner.model.pointer is None


def test_a_garbage_collected_runner_is_unloaded():
    runner = Leap.load("builtin")
    model = runner.model
    generation = runner.start([ChatMessage("user", "Count to 300.")])
    next(generation)
    del runner
    gc.collect()
    assert model.pointer is not None, "somebody still reads"
    generation.close()
    del generation
    gc.collect()
    deadline = time.monotonic() + 100
    while model.pointer is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_text_of_a_token_is_not_read_from_freed_memory():
    runner = Leap.load("builtin")
    runner.unload()
    with pytest.raises(LeapGenerationError, match="unloaded"):
        runner.model.piece(300)
