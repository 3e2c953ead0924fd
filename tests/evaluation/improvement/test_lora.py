"""What a LoRA adapter is trained on: which lines are examples, and which of their tokens the loss counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leap_core import LeapError
from leap_core.evaluation.improvement.lora import MOST_TOKENS, TrainingSettings, encoded, read_data, read_examples


class LetterTokenizer:
    """A token for each character; messages between marks, tools at the start. ``forgets``: shows the last answer alone
    with its reasoning, as templates of reasoning models do."""

    def __init__(self, forgets: bool = False) -> None:
        self.forgets = forgets

    def apply_chat_template(self, messages, tools=None, tokenize=True, add_generation_prompt=False):
        assert not tokenize and all("weight" not in each for each in messages)
        text = f"[{json.dumps(tools)}]" if tools else ""
        for n, each in enumerate(messages):
            content = each["content"]
            if self.forgets and n < len(messages) - 1:
                content = content.rpartition(")")[2]
            text += f"<{each['role'][0]}:{content}>"
        return text + ("<a:" if add_generation_prompt else "\n")

    def __call__(self, text, add_special_tokens, return_offsets_mapping):
        assert not add_special_tokens and return_offsets_mapping
        return {"input_ids": [ord(char) for char in text], "offset_mapping": [(n, n + 1) for n in range(len(text))]}


def talk(*texts: str, **fields) -> dict:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)], **fields}


def shown(example, tokenizer=None) -> list[tuple[str, str]]:
    """The texts of an example, and of each what the loss counts."""
    found = encoded(example, tokenizer or LetterTokenizer())
    return [
        ("".join(map(chr, each["input_ids"])), "".join(chr(label) for label in each["labels"] if label != -100))
        for each in found
    ]


def test_every_answer_of_a_conversation_counts():
    assert shown(talk("Hi", "Ho", "And", "So")) == [("<u:Hi><a:Ho><u:And><a:So>", "Ho>So>")]


def test_an_answer_of_weight_0_is_context():
    example = talk("Hi", "Ho", "And", "So")
    example["messages"][1]["weight"] = 0
    assert shown(example) == [("<u:Hi><a:Ho><u:And><a:So>", "So>")]
    example["messages"][1]["weight"], example["messages"][3]["weight"] = 1, 0
    assert shown(example) == [("<u:Hi><a:Ho>", "Ho>")]


def test_a_template_that_drops_reasoning_gives_each_answer_its_own_text():
    assert shown(talk("Hi", "(hm)Ho", "And", "(so)So"), LetterTokenizer(forgets=True)) == [
        ("<u:Hi><a:(hm)Ho>", "(hm)Ho>"),
        ("<u:Hi><a:Ho><u:And><a:(so)So>", "(so)So>"),
    ]


def test_the_template_gets_the_tools_of_a_line():
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert shown(talk("Hi", "Ho", tools=tools)) == [(f"[{json.dumps(tools)}]<u:Hi><a:Ho>", "Ho>")]
    assert shown(talk("Hi", "Ho", tools=[])) == [("<u:Hi><a:Ho>", "Ho>")]


def written(path: Path, examples) -> TrainingSettings:
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in examples), "utf-8")
    return TrainingSettings(path, path.parent, path.with_suffix(".gguf"))


def test_examples_beyond_the_limit_are_counted_and_reported(tmp_path):
    short, long = talk("Hi", "Ho"), talk("x" * MOST_TOKENS, "Ho")
    first_fits = talk("Hi", "Ho", "x" * MOST_TOKENS, "So")
    told = []
    wish = written(tmp_path / "d.jsonl", [*[short] * 18, first_fits, long, long])
    count, held, learnt = read_data(wish, LetterTokenizer(), lambda *words: told.append(words[2]))
    assert (count, len(held), len(learnt)) == (19, 1, 18)
    assert told == [
        f"3 texts are longer than {MOST_TOKENS} tokens, and answers behind that are not trained on",
        "2 of 21 examples have no answer to train on: left out",
    ]
    assert all(set(each) == {"input_ids", "labels"} and len(each["labels"]) <= MOST_TOKENS for each in held + learnt)
    with pytest.raises(LeapError, match="7 examples with an answer to train on; 8 are the fewest"):
        read_data(written(tmp_path / "f.jsonl", [*[short] * 7, long]), LetterTokenizer(), print)


def test_an_answer_that_does_not_end_within_the_limit_does_not_count():
    text = "x" * (MOST_TOKENS - 5)
    (made,) = encoded({"prompt": text, "completion": "four"}, LetterTokenizer())
    assert sum(label != -100 for label in made["labels"]) == 4 and not made["is_cut"]
    (made,) = encoded({"prompt": text, "completion": "sixsix"}, LetterTokenizer())
    assert all(label == -100 for label in made["labels"]) and made["is_cut"]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
def test_unicode_line_separators_are_characters_of_an_example(tmp_path, mark):
    wish = written(tmp_path / "d.jsonl", [talk(f"one{mark}two", "Ho")] * 8)
    assert read_examples(wish.data)[7]["messages"][0]["content"] == f"one{mark}two"


def test_invalid_examples_are_named_with_their_line(tmp_path):
    for wrong in (talk("Hi"), talk("Hi", "Ho", tools="f"), {"prompt": "x"}, {"messages": "x"}):
        wish = written(tmp_path / "d.jsonl", [talk("Hi", "Ho"), wrong])
        with pytest.raises(LeapError, match="d.jsonl, line 2: "):
            read_examples(wish.data)
