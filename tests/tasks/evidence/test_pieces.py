"""Texts that are read in several pieces: where values are in the whole of them."""

from __future__ import annotations

import io
import json
import re

import pytest

from leap_core.testing import ScriptedModelRunner
from tests.pdf_bytes import pdf_bytes
from tests.tasks.conftest import do

ORDER = re.compile(r"Order (\w+): (\d+) lamps")
SCHEMA = {"type": "object", "properties": {"orders": {"type": "array", "items": {"type": "object", "properties": {
    "name": {"type": "string"}, "count": {"type": "integer"}, "item": {"type": "string"}}}}}}  # fmt: skip
NAMES = ["Ann", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal"]


class FindingRunner(ScriptedModelRunner):
    """Finds the orders of a piece; the first of each only when it is asked again, at another temperature."""

    def start(self, messages, functions=(), options=None):
        found = [{"name": m[1], "count": int(m[2]), "item": "lamps"} for m in ORDER.finditer(messages[-1].text)]
        found = found if options.temperature else found[1:]
        self.add(json.dumps({"orders": found}))
        return super().start(messages, functions, options)


def orders(n: int) -> str:
    return f"Order {NAMES[2 * n]}: {n + 20} lamps. Order {NAMES[2 * n + 1]}: {n + 30} lamps."


@pytest.mark.parametrize("passes", [1, 2])
def test_pieces_keep_the_offsets_of_the_whole_text(passes):
    rain = "It rained \u2614 and \U0001f600. " * 30
    text = "\n\n".join(f"{rain}\n{orders(n)}" for n in range(4))
    runner = FindingRunner(context_size=300)
    reply = do(runner, text, task="extract", schema=SCHEMA, evidence=True, passes=passes)
    assert len(runner.requests) > 3 * passes and all("\U0001f600" in each.messages[-1].text for each in runner.requests)
    found = [entry for entry in reply.details["evidence"] if entry["pointer"].endswith(("name", "item"))]
    names = [entry["value"] for entry in found if entry["pointer"].endswith("name")]
    assert (sorted(names) == NAMES) if passes == 2 else set(names) < set(NAMES)
    for name, item in zip(found[::2], found[1::2], strict=True):
        start = text.index(f"Order {name['value']}:") + 6
        assert (name["place"]["start"], name["place"]["end"]) == (start, start + len(name["value"]))
        assert item["place"]["start"] == text.index("lamps", start), "the mention beside its own name"
        assert item["place"]["line"] == text[:start].count("\n") + 1


def test_values_on_pages_of_a_long_pdf_have_their_pages(leap, tmp_path):
    pytest.importorskip("pypdf")
    pages = [["It rained and rained, all day long and all night." for _ in range(20)] for _ in range(8)]
    pages[1][3], pages[6][18] = orders(0), orders(3)
    (tmp_path / "long.pdf").write_bytes(pdf_bytes(*pages))
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    leap.runner = runner = FindingRunner(context_size=400)
    done = leap("extract", "--json-schema", "schema.json", "--evidence", "--passes", "2", "long.pdf")
    assert done.code == 0, done
    made = json.loads(io.StringIO(done.stdout).readline())
    names = {each["value"]: each["place"] for each in made["evidence"] if each["pointer"].endswith("name")}
    assert len(runner.requests) > 4 and {name: place["page"] for name, place in names.items()} == {
        "Ann": 2, "Bob": 2, "Gus": 7, "Hal": 7}  # fmt: skip
    assert all(made["source_text"][place["start"] : place["end"]] == name for name, place in names.items())


def test_a_value_that_a_piece_invents_yields_to_one_that_another_piece_has():
    rain = "It rained all day. " * 40
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    answers = ['{"name": "Bob", "age": 7}', '{"name": "Ann"}']
    wanted = {"name": "Ann", "age": 7}
    text = f"{rain}{rain}Ann came."
    reply = do(ScriptedModelRunner(*answers, context_size=300), text, task="extract", schema=schema, evidence=True)
    assert reply.details["document"] == wanted
    assert [each["how"] for each in reply.details["evidence"]] == ["exact", "not_in_text"]
    plain = do(ScriptedModelRunner(*answers, context_size=300), text, task="extract", schema=schema)
    assert json.loads(plain.full_message.text) == {"name": "Bob", "age": 7}, "without evidence the first counts"
