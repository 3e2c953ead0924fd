"""Options: ranges, defaults, JSON."""

from __future__ import annotations

import dataclasses
import inspect
import json
from dataclasses import fields

import pytest

from leap_core.conversation.options import CacheOptions, GenerationOptions, ModelLoadingOptions, SamplingDefaults
from leap_core.errors import LeapOptionsError


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("temperature", [0, 0.3, 2, 100.0], [-0.1, float("nan"), float("inf"), 10**400, "hot", True]),
        ("top_p", [0, 0.5, 1], [-0.1, 1.1, float("nan"), "x"]),
        ("min_p", [0, 0.5, 1], [-0.1, 1.1, float("nan"), "x"]),
        ("repetition_penalty", [0.5, 1, 2.0], [0, -1, float("nan"), "x"]),
        ("frequency_penalty", [-2, 0, 2], [-2.1, 2.1, "x"]),
        ("presence_penalty", [-2, 0, 2], [-2.1, 2.1, "x"]),
        ("top_k", [0, 1, 40], [-1, 1.5, "x", True]),
        ("max_tokens", [1, 100000], [0, -1, 1.5, "x", True]),
        ("repeat_last_n", [-1, 0, 64], [-2, 0.5, 2**70]),
        ("rng_seed", [0, 2**63], [-1, 0.5, "x"]),
        ("stop", [[], ["a"], ("a", "b")], ["text", [""], [5]]),
        ("function_call_parser", ["auto", "lfm", "hermes", None], ["other", 5]),
        (
            "logit_bias",
            [{}, {5: -1.0}],
            [None, [5], {"5": 1.0}, {-1: 1.0}, {5: "x"}, {5: float("nan")}, {5: 10**400}, {True: 1.0}],
        ),
        ("choices_constraint", [["yes", "no"]], [[], "yes", ["yes", ""], [1, 2], 5]),
        ("regex_constraint", ["a+"], [5, ["a"]]),
        ("json_schema_constraint", ["{}"], [5, {}]),
        ("enable_thinking", [True, False], [5, None]),
    ],
)
def test_option_ranges_are_checked(name, good, bad):
    for value in good:
        assert getattr(GenerationOptions(**{name: value}), name) == value
    for value in bad:
        with pytest.raises(LeapOptionsError) as caught:
            GenerationOptions(**{name: value})
        assert caught.value.option == name
        assert name in str(caught.value)


def test_an_options_error_is_a_value_error():
    with pytest.raises(ValueError):
        GenerationOptions(temperature=-1)


def test_constraints_exclude_each_other():
    with pytest.raises(LeapOptionsError, match="cannot be combined with json_schema_constraint"):
        GenerationOptions(json_schema_constraint="{}", regex_constraint="a+")


def test_build_fills_in_and_validates():
    assert GenerationOptions.build(lambda o: setattr(o, "top_k", 5)).top_k == 5
    with pytest.raises(LeapOptionsError):
        GenerationOptions.build(lambda o: setattr(o, "top_k", -5))


def test_json_holds_only_what_differs_and_reads_back_equal():
    assert GenerationOptions().to_json() == {}
    options = GenerationOptions(
        temperature=0.3,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.05,
        top_k=50,
        rng_seed=7,
        json_schema_constraint="{}",
        function_call_parser=None,
        inject_schema_into_prompt=False,
        max_tokens=10,
        inline_thinking_tags=True,
        enable_thinking=True,
        extras="{}",
        stop=["END"],
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        repeat_last_n=32,
        logit_bias={5: -1.5},
        tool_choice="required",
        audio_temperature=0.9,
        audio_top_k=4,
        image_tokens=64,
        image_tiles=True,
        additional_properties=True,
        forced_logprobs=False,
        repetition_detection=False,
        any_whitespace=True,
        complete_json=True,
        grounding=True,
        adapters=["/tmp/adapter.gguf"],
        logprobs=True,
        top_logprobs=3,
        prompt_logprobs=True,
        logprob_tokens=[3, 4],
        decision="{}",
        repairs=2,
        think_budget=40,
        think_budget_message="Enough.",
        chat_template_kwargs={"reasoning_effort": "low"},
        priority=-3,
        typical_p=0.9,
        xtc_probability=0.5,
        xtc_threshold=0.2,
        ignore_eos=True,
        min_tokens=3,
        stop_token_ids=[5],
    )
    text = json.dumps(options.to_json())
    assert GenerationOptions.from_json(json.loads(text)) == options
    others = {"regex_constraint", "grammar_constraint", "choices_constraint"}
    assert set(options.to_json()) | others == {f.name for f in fields(GenerationOptions)}


@pytest.mark.parametrize(
    ("value", "option"),
    [
        ([], "options"),
        ({"temprature": 1}, "options.temprature"),
        ({"temperature": "hot"}, "temperature"),
        ({"logit_bias": {"x": 1}}, "options.logit_bias"),
        ({"logit_bias": [1]}, "options.logit_bias"),
        ({"stop": None}, "stop"),
    ],
)
def test_invalid_json_of_options_is_refused(value, option):
    with pytest.raises(LeapOptionsError) as caught:
        GenerationOptions.from_json(value)
    assert caught.value.option == option


def test_none_falls_back_and_set_values_stay():
    defaults = SamplingDefaults(temperature=0.1, top_k=50).over(SamplingDefaults(temperature=0.9, min_p=0.15))
    merged = GenerationOptions(top_k=0, max_tokens=5).with_defaults(defaults)
    assert (merged.temperature, merged.top_k, merged.min_p, merged.top_p, merged.max_tokens) == (0.1, 0, 0.15, None, 5)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("context_size", [0, -1, 1.5, "x", 2**31]),
        ("cpu_threads", [0, -1, 513]),
        ("n_gpu_layers", [-2, 0.5, 2**32]),
        ("slots", [0, 257]),
        ("batch_size", [0, 2**32 + 1]),
        ("random_seed", [-1]),
        ("kv_type_k", ["f8", 5]),
        ("chat_template", [5]),
        ("cache_options", [True]),
        ("kv_type_v", ["f8"]),
    ],
)
def test_loading_options_have_ranges(name, bad):
    for value in bad:
        with pytest.raises(LeapOptionsError) as caught:
            ModelLoadingOptions(**{name: value})
        assert caught.value.option == name


def test_loading_options_of_none_fall_back():
    named = [f.name for f in dataclasses.fields(ModelLoadingOptions)]
    assert ModelLoadingOptions(**dict.fromkeys(named)) == ModelLoadingOptions()


def test_cache_options_have_ranges_and_the_sdk_default():
    assert CacheOptions().disk_entries == 4096
    assert CacheOptions(max_entries_disk=3).disk_entries == 3
    with pytest.raises(LeapOptionsError):
        CacheOptions(max_bytes_memory=-1)


def test_extras_are_options_by_name() -> None:
    options = GenerationOptions(top_k=3, extras='{"top_k": 5, "stop": ["x"]}').with_extras()
    assert (options.top_k, list(options.stop), options.extras) == (5, ["x"], None)
    assert ModelLoadingOptions(extras='{"batch_size": 64}').with_extras().batch_size == 64


@pytest.mark.parametrize("text", ["[]", "{", '{"nothing": 1}', '{"top_k": -1}', '{"extras": "{}"}'])
def test_invalid_extras_are_refused(text: str) -> None:
    with pytest.raises(LeapOptionsError):
        GenerationOptions(extras=text).with_extras()


@pytest.mark.parametrize(
    ("name", "value"), [("temprature", 0.3), ("temperature", -5), ("top_k", "x"), ("stop", "END"), ("seed", 5)]
)
def test_an_option_is_checked_where_it_is_set(name, value):
    options = GenerationOptions(temperature=0.5)
    with pytest.raises(LeapOptionsError) as caught:
        setattr(options, name, value)
    assert caught.value.option == name and options == GenerationOptions(temperature=0.5)
    assert name != "temprature" or "did you mean 'temperature'?" in str(caught.value)


def test_numbers_of_numpy_are_numbers():
    import numpy as np

    options = GenerationOptions(temperature=np.float32(0.5), top_k=np.int64(40))
    options.max_tokens = np.int32(5)
    assert json.loads(json.dumps(options.to_json())) == {"temperature": 0.5, "top_k": 40, "max_tokens": 5}
    assert type(options.top_k) is int


def test_a_parser_is_an_object_and_not_its_class():
    from leap_core import LFMFunctionCallParser

    with pytest.raises(LeapOptionsError, match="give an object of the class"):
        GenerationOptions(function_call_parser=LFMFunctionCallParser)
    assert GenerationOptions(function_call_parser=LFMFunctionCallParser()).function_call_parser is not None


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        (GenerationOptions, "temprature", "temperature"),
        (ModelLoadingOptions, "contxt_size", "context_size"),
        (CacheOptions, "enable", "enabled"),
    ],
)
def test_a_misspelled_name_in_the_constructor_gets_a_suggestion(kind, name, meant):
    with pytest.raises(LeapOptionsError, match=f"{name}.*did you mean '{meant}'") as caught:
        kind(**{name: 1})
    assert caught.value.option == name
    assert dataclasses.is_dataclass(kind) and "self" in inspect.signature(kind.__init__).parameters


def test_keys_and_values_have_different_types_on_a_cpu():
    """For two of the kind f16 llama.cpp has ways to compute attention that round differently."""
    plain = ModelLoadingOptions()
    assert plain.kv_types(gpu_layers=0) == ("bf16", "f16")
    assert plain.kv_types(gpu_layers=4) == ("f16", "f16")
    assert ModelLoadingOptions(flash_attention=False).kv_types(0) == ("f16", "f16")
    assert ModelLoadingOptions(kv_type_k="f16").kv_types(0) == ("f16", "bf16")
    assert ModelLoadingOptions(kv_type_k="q8_0").kv_types(0) == ("q8_0", "bf16")
    assert ModelLoadingOptions(kv_type_v="bf16").kv_types(0) == ("f16", "bf16")
    assert ModelLoadingOptions(kv_type_v="q8_0").kv_types(0) == ("bf16", "q8_0")
    assert ModelLoadingOptions(kv_type_k="f16", kv_type_v="f16").kv_types(0) == ("f16", "f16")


def test_keys_and_values_are_f16_for_weights_whose_products_differ_more():
    assert ModelLoadingOptions().kv_types(0, is_coarse=True) == ("f16", "f16")
    assert ModelLoadingOptions(kv_type_k="q8_0").kv_types(0, is_coarse=True) == ("q8_0", "f16")
    assert ModelLoadingOptions(deterministic=True).kv_types(0, is_coarse=True) == ("bf16", "f16")


def test_every_integer_option_accepts_a_whole_float():
    names = [each.name for each in fields(GenerationOptions) if str(each.type) == "int | None"]
    assert {"top_k", "repeat_last_n", "rng_seed", "max_tokens", "priority"} <= set(names)
    for name in names:
        value = 16.0
        options = GenerationOptions.from_json({name: value})
        assert getattr(options, name) == 16 and type(getattr(options, name)) is int, name
        for bad in (16.5, float("nan"), float("inf")):
            with pytest.raises(LeapOptionsError, match=name):
                GenerationOptions.from_json({name: bad})
