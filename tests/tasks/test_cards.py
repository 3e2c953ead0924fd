"""Prompts and sampling equal those of Liquid's model cards to the letter.

The texts are written here as the cards and the documentation of the models have them (docs.liquid.ai and
huggingface.co/LiquidAI, read in November 2026); nothing of leap's own makes them.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from leap_core import Leap
from leap_core.conversation.messages import ChatMessage, Image
from leap_core.conversation.runner import PassingRunner
from leap_core.models.catalogue import Catalogue
from leap_core.models.resolving import resolve_local
from leap_core.tasks.search.searching import prompt_of
from leap_core.tasks.task_fields import read_task
from leap_core.testing import ScriptedModelRunner

from .conftest import ask_of

PICTURE = Image(b"\xff\xd8\xff\xe0")
SCHEMA = {
    "type": "object",
    "properties": {
        "field_name": {"type": "string", "description": "Description of what to extract"},
        "nested_object": {
            "type": "object",
            "properties": {"nested_field": {"type": "string", "description": "Description"}},
        },
    },
}
EXTRACT = (
    "Identify and extract information matching the following schema.\n"
    "Return data as a JSON object. Missing data should be omitted.\n"
    "\n"
    "Schema:\n"
    '- field_name: "Description of what to extract"\n'
    "- nested_object:\n"
    '  - nested_field: "Description"'
)
EXTRACT_FROM_PICTURE = (
    "Extract the following from the image:\n"
    "\n"
    "field_name: Description of what to extract\n"
    "nested_object:\n"
    "  nested_field: Description\n"
    "\n"
    "Respond with only a JSON object. Do not include any text outside the JSON."
)
ANALYST = (
    "You are an expert meeting analyst. Analyze the transcript carefully\n"
    "and provide clear, accurate information based on the content."
)
INSTRUCTIONS = {
    "executive": "Provide a brief executive summary (2-3 sentences) of the key outcomes and decisions.",
    "detailed": "Provide a detailed summary covering all major topics, discussions, and outcomes.",
    "actions": "List the specific action items assigned during this meeting.",
    "decisions": "List the key decisions that were made during this meeting.",
    "participants": "List the participants mentioned in this transcript.",
    "topics": "List the main topics and subjects that were discussed.",
}
TRANSCRIPT = (
    "Title: Quarterly plans\n"
    "Date: May 1, 2026\n"
    "Time: 10:00 AM\n"
    "Duration: 45 minutes\n"
    "Participants: Ann Lee (Lead), Bob Ray (Designer)\n"
    "\n"
    "----------\n"
    "\n"
    "**Ann Lee**: Good morning.\n"
    "**Bob Ray**: Good morning, Ann."
)
GREEDY = {"temperature": 0.0}
MT = {"temperature": 0.3, "min_p": 0.15, "repetition_penalty": 1.05}
CATEGORIES = ["phone_number", "human_name", "email_address", "company_name", "address"]

CARDS = [
    *[
        (model, {"task": "extract", "schema": SCHEMA}, "The text.", EXTRACT, "The text.", GREEDY)
        for model in (
            "LFM2-350M-Extract-Q4_0",
            "LFM2-1.2B-Extract",
            "LFM2.5-1.2B-Instruct-Q4_K_M",  # took the place of LFM2-1.2B-Extract, LFM2.5-350M that of LFM2-350M-Extract
            "LFM2.5-350M",
        )
    ],
    *[
        (model, {"task": "extract", "schema": SCHEMA}, PICTURE, EXTRACT_FROM_PICTURE, None, GREEDY)
        for model in ("LFM2.5-VL-450M-Extract", "LFM2.5-VL-1.6B-Extract-Q8_0")
    ],
    (
        "LFM2-350M-PII-Extract-JP",
        {"task": "redact", "categories": CATEGORIES},
        "山田太郎です。",
        "Extract <address>, <company_name>, <email_address>, <human_name>, <phone_number>",
        "山田太郎です。",
        GREEDY,
    ),
    (
        "LFM2-350M-PII-Extract-JP-Q8_0",
        {"task": "redact", "categories": "phone_number, address"},
        "東京都",
        "Extract <address>, <phone_number>",
        "東京都",
        GREEDY,
    ),
    ("LFM2-350M-ENJP-MT", {"task": "translate", "to": "ja"}, "Hi.", "Translate to Japanese.", "Hi.", MT),
    ("LFM2-350M-ENJP-MT-Q5_K_M", {"task": "translate", "to": "English"}, "やあ", "Translate to English.", "やあ", MT),
    ("LFM2-350M-ENJP-MT", {"task": "translate", "to": "ja", "from": "en"}, "Hi", "Translate to Japanese.", "Hi", MT),
    *[
        (
            "LFM2-2.6B-Transcript-Q4_K_M",
            {"task": "summarize", "kind": kind},
            TRANSCRIPT,
            ANALYST,
            f"{instruction}\n\n{TRANSCRIPT}",
            {"temperature": 0.3},
        )
        for kind, instruction in INSTRUCTIONS.items()
    ],
]


@pytest.mark.parametrize(
    ("model", "fields", "content", "system", "user", "sampling"),
    CARDS,
    ids=[f"{card[0]} {card[1].get('kind') or card[1].get('to') or card[1]['task']}" for card in CARDS],
)
def test_a_prompt_is_that_of_the_card(model, fields, content, system, user, sampling):
    runner = ScriptedModelRunner(model_id=model)
    message = ChatMessage("user", content)
    task, _ = read_task(fields)
    model_of_task = task.model(runner, message, ask_of(runner))
    ((messages, options),) = task.task.prompts(model_of_task, message)
    assert [each.role.value for each in messages] == ["system", "user"]
    assert messages[0].text == system
    assert messages[1] == ChatMessage("user", content if user is None else user)
    chosen = {name: getattr(options, name) for name in ("temperature", "top_p", "min_p", "repetition_penalty", "top_k")}
    assert {name: value for name, value in chosen.items() if value is not None} == sampling


RENAMED = [
    (("LFM2-350M-Extract", "lfm2"), "extract", "*Extract*"),
    (("a-fine-tune", "LFM2-350M-Extract", "lfm2"), "extract", "*Extract*"),
    (("a-fine-tune", "lfm2moe"), "extract", "*LFM2*"),
    (("LFM2-350M-PII-Extract-JP", "lfm2"), "redact", "*PII-Extract*"),
    (("LFM2-350M-ENJP-MT", "lfm2"), "translate", "*ENJP-MT*"),
    (("Qwen2.5-Coder-0.5B-Instruct", "qwen2"), "extract", "*"),
    ((), "extract", "*"),
]


@pytest.mark.parametrize(("names", "task", "pattern"), RENAMED)
def test_a_renamed_file_is_asked_as_its_header_says(names, task, pattern):
    fields = {"extract": {"schema": SCHEMA}, "redact": {"categories": CATEGORIES}, "translate": {"to": "ja"}}[task]
    recipe_task, _ = read_task({"task": task, **fields})
    runner = ScriptedModelRunner(model_id="my-model", header_names=names)
    model = recipe_task.model(PassingRunner(runner), ChatMessage("user", "Hi."), ask_of(runner))
    assert model.wording.models[0] == pattern


def test_the_header_of_a_renamed_file_is_read(tmp_path):
    path = tmp_path / "renamed.gguf"
    path.symlink_to(resolve_local("builtin").path)
    task, _ = read_task({"task": "extract", "schema": SCHEMA})
    with Leap.load(path, host="never") as runner:
        assert task.model(runner, ChatMessage("user", "Hi."), ask_of(runner)).wording.models[0] == "builtin*"


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        ("LFM2-350M-Extract", GREEDY),
        ("LFM2-1.2B-Extract", GREEDY),
        ("LFM2.5-VL-450M-Extract", GREEDY),
        ("LFM2.5-VL-1.6B-Extract", GREEDY),
        ("LFM2-350M-PII-Extract-JP", GREEDY),
        ("LFM2-1.2B-RAG", GREEDY),
        ("LFM2-1.2B-Tool", GREEDY),
        ("LFM2-350M-Math", {"temperature": 0.6, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.05}),
        ("LFM2-350M-ENJP-MT", MT),
        ("LFM2-2.6B-Transcript", {"temperature": 0.3}),
    ],
)
def test_the_catalogue_samples_as_the_cards_say(name, sampling):
    entry = Catalogue.load().exact(name)
    assert entry is not None and entry.to_json()["sampling"] == sampling


def test_a_question_about_documents_is_put_as_the_rag_card_does():
    hits = [SimpleNamespace(passage=SimpleNamespace(heading="", text=text)) for text in ("First text.", "Second text.")]
    messages, _ = prompt_of("Why?", hits, lambda _messages: True, model_names=["LFM2-1.2B-RAG-Q4_0"])  # type: ignore[arg-type]
    assert messages[0].text == (
        "The following documents may provide you additional information to answer questions:\n"
        "\n"
        "<document1>\n"
        "First text.\n"
        "</document1>\n"
        "\n"
        "<document2>\n"
        "Second text.\n"
        "</document2>"
    )
    assert messages[1] == ChatMessage("user", "Why?")


def test_what_a_translator_does_not_know_is_refused():
    runner = ScriptedModelRunner(model_id="LFM2-350M-ENJP-MT")
    for fields in ({"to": "de"}, {"to": "ja", "from": "de"}):
        task, _ = read_task({"task": "translate", **fields})
        with pytest.raises(ValueError, match="English and Japanese only"):
            task.complete(runner, ChatMessage("user", "Hi"), ask_of(runner), name="x")
    assert runner.requests == []


def test_lists_of_personal_data_have_all_categories():
    """The card: one list a category, also an empty one."""
    runner = ScriptedModelRunner('{"address": [], "human_name": []}', model_id="LFM2-350M-PII-Extract-JP")
    task, _ = read_task({"task": "redact", "categories": ["human_name", "address"]})
    task.complete(runner, ChatMessage("user", "x"), ask_of(runner), name="x")
    shape = json.loads(runner.requests[0].options.json_schema_constraint or "")
    assert list(shape["properties"]) == shape["required"] == ["address", "human_name"]
