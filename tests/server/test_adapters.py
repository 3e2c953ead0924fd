"""``MODEL+ADAPTER``: which adapters answer a request to a host."""

from __future__ import annotations

import openai
import pytest

from leap_core import ChatMessage, GenerationOptions, LoraAdapter
from leap_core.server.models.loaded_model import LoadRequest

DETAILS = {"adapters": [{"path": "/x/poet.gguf", "scale": 0.5}, {"path": "/x/terse.gguf", "scale": 0.0}]}


@pytest.mark.slow
def test_a_request_names_adapters_behind_the_model(serve):
    server = serve(*["yes"] * 4, details=DETAILS)
    poet, terse = LoraAdapter("/x/poet.gguf", 0.5), LoraAdapter("/x/terse.gguf", 1.0)
    for name, adapters in (
        ("builtin", None),
        ("builtin+poet", (poet,)),
        ("BUILTIN+terse", (terse,)),
        ("builtin+terse+poet", (terse, poet)),
    ):
        assert server.ask(model=name).model == name
        used = server.runner.requests[-1].options.adapters
        assert used == adapters or tuple(used) == adapters
    assert [model.id for model in server.client().models.list()] == ["builtin", "builtin+poet", "builtin+terse"]
    assert server.client().models.retrieve("builtin+poet").id == "builtin+poet"
    with pytest.raises(openai.NotFoundError, match="'prose'; it has: poet, terse"):
        server.ask(model="builtin+prose")
    with pytest.raises(openai.NotFoundError):
        server.ask(model="other+poet")


def test_clients_name_no_files(serve):
    server = serve("no", "yes")
    with pytest.raises(openai.BadRequestError, match="clients name no files"):
        server.ask(extra_body={"leap": {"options": {"adapters": [{"path": "/etc/passwd"}]}}})
    assert server.ask(extra_body={"leap": {"options": {"adapters": []}}}).choices


def test_leap_s_own_client_brings_its_adapters(serve, tmp_path):
    server = serve("one", "two", private=True)
    runner = server.warm
    poet = tmp_path / "poet.gguf"
    poet.touch()
    runner.set_adapters([poet])
    for options, path in ((None, poet), (GenerationOptions(adapters=["/x/terse.gguf"]), "/x/terse.gguf")):
        list(runner.start([ChatMessage("user", "hi")], options=options))
        assert server.runner.requests[-1].options.adapters == (LoraAdapter(path),)


def test_a_loaded_model_matches_when_its_options_match(serve):
    (model,) = serve(details={**DETAILS, "kv_type_k": "q8_0"}).models
    assert model.differs(LoadRequest("builtin")) is None
    assert model.differs(LoadRequest("builtin", details={"kv_type_k": "q8_0"})) is None
    assert model.differs(LoadRequest("builtin", details={"kv_type_k": "f32"})) == "another kv_type_k"
    assert model.differs(LoadRequest("builtin", details={"adapters": ["/x/poet.gguf"]})) == "other adapters"


@pytest.mark.parametrize(
    "request_body",
    [
        {"details": 5},
        {"details": {"slots": 5}},
        {"details": {"kv_type_k": "f64"}},
        {"details": {"adapters": "x"}},
        {"prompt_cache": {"path": 5}},
        {"prompt_cache": {"path": "x", "bytes": -1}},
    ],
)
def test_forbidden_fields_of_a_load_request_are_refused(serve, request_body):
    server = serve(private=True)
    with pytest.raises(Exception, match="details|kv_type_k|adapters|prompt_cache"):
        server.host.load("builtin", **request_body)
