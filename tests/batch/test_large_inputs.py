"""What stays small when the input is large, and what happens when it changes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from leap_core.batch.checking import check_batch
from leap_core.batch.input.line_index import check_lines
from leap_core.batch.input.lines import RequestReader, key_of
from leap_core.batch.input.quick_check import LineChecker
from leap_core.batch.input.rows import LONGEST_ROW, InputRows
from leap_core.batch.journal.journal import Journal
from leap_core.batch.journal.line_result import LineResult
from leap_core.batch.output.output_file import OutputFile
from leap_core.batch.settings import BatchSettings
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import Complete, GenerationFinishReason
from leap_core.errors import LeapSerializationError, LeapUnavailableError

from .conftest import rows_of


def lines(count: int) -> bytes:
    rows = ({"custom_id": f"id-{n}", "prompt": f"{'word ' * 20}{n}", "temperature": 0} for n in range(count))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


MEASURE = """
import resource, sys
import numpy
from leap_core.batch.input.rows import InputRows
from leap_core.batch.input.line_index import check_lines
from leap_core.batch.input.lines import RequestReader
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
check_lines(InputRows(sys.argv[2]), RequestReader())
before = peak()
assert len(check_lines(InputRows(sys.argv[1]), RequestReader()).index) == 100_000
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
def test_a_line_takes_less_than_150_bytes_of_memory(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(lines(100_000))
    (tmp_path / "one.jsonl").write_bytes(lines(1))
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "in.jsonl"), str(tmp_path / "one.jsonl")]
    kilobytes = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert kilobytes * 1024 / 100_000 < 150


def test_quick_checks_agree_with_full_ones():
    options = {"temperature": 0, "max_tokens": 5}
    rows = [
        {"prompt": "a", **options},
        {"custom_id": "x", "prompt": 'b "q" \\ \u2028 ü', **options},
        {"messages": [{"role": "user", "content": "c"}]},
        {"messages": [{"role": "developer", "content": "s"}, {"role": "user", "content": "d"}]},
        {"messages": [{"role": "user", "content": "e"}], "system": "own"},
        {"id": 5, "prompt": "f", "system": "own", "model": "m"},
        {"custom_id": "y", "method": "POST", "body": {"messages": [{"role": "user", "content": "g"}], **options}},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "h"}]}]},
        {"prompt": "i", "seed": None},
        {"messages": [{"role": "user", "content": ""}]},
    ]
    for system in (None, "command's"):
        reader = RequestReader(system=system)
        raws = [json.dumps(row).encode() for row in rows * 2]
        named = [raw[:-1] + b', "model": "m"}' if b'"model"' not in raw and b"body" not in raw else raw for raw in raws]
        for texts in (raws, named):
            checker = LineChecker(reader)
            for number, raw in enumerate(texts, start=1):
                request = reader.read(raw)
                name = request.custom_id or f"line-{number}"
                assert checker.check(raw, number) == (name, request.digest(name), request.model, False), raw


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": None, "messages": [{"role": "user", "content": "a"}]},
        {"prompt": "a", "messages": [{"role": "user", "content": "a"}]},
        {"prompt": " "},
        {"messages": []},
        {"messages": [{"role": "user", "content": "a", "what": 1}], "extra": 1},
        {"custom_id": "", "prompt": "a"},
        {"url": "/v1/other", "body": {"messages": [{"role": "user", "content": "a"}]}},
        {"extra": 1, "body": {"messages": [{"role": "user", "content": "a"}]}},
        {"system": 1, "prompt": "a"},
    ],
)
def test_quick_checks_refuse_what_full_ones_refuse(row):
    sound = [{"prompt": "a"}, {"custom_id": "b", "body": {"messages": [{"role": "user", "content": "a"}]}}]
    text = b"".join(json.dumps(each).encode() + b"\n" for each in (*sound, row))
    checked = check_lines(rows_of(text), RequestReader())
    assert (len(checked.index), [problem.number for problem in checked.problems]) == (2, [3])


@pytest.mark.slow
def test_a_line_of_50_megabytes_is_refused_at_once(batch, tmp_path):
    row = {"prompt": "x" * (50 * 1024**2)}
    done, runner = batch([{"prompt": "a"}, row, {"prompt": "b"}])
    assert (done.code, runner.asked) == (2, []) and "line 2: longer than 16 MiB" in done.stderr
    assert LONGEST_ROW == 16 * 1024**2
    done, runner = batch([{"prompt": "a"}, row, {"prompt": "b"}], "--skip-invalid")
    assert (done.code, runner.asked) == (0, ["a", "b"])


def test_problems_beyond_the_first_thousand_are_counted():
    checked = check_lines(rows_of(b"{\n" * 5000 + b'{"prompt": "a"}'), RequestReader())
    assert (checked.problem_count, len(checked.problems), len(checked.index)) == (5000, 1000, 1)


def test_a_batch_ends_when_its_input_changes_while_it_runs(batch, tmp_path):
    changed = threading.Event()

    def answer(text):
        if text == "1":
            (tmp_path / "in.jsonl").write_text('{"prompt": "other"}\n' * 10)
            changed.set()
        elif text != "0":  # else the other threads could answer all lines before the file is written
            changed.wait(60)
        return f"<{text}>"

    done, runner = batch([{"prompt": str(n)} for n in range(40)], "--concurrency", "1", answer=answer)
    assert done.code == 2 and "of the input changed while the batch ran" in done.stderr
    assert "other" not in runner.asked


def test_an_input_that_changed_since_submission_is_refused(tmp_path):
    """A second attempt of a job would leave lines out of the output that the first one answered."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines(20))
    given = {"default_model": "builtin", "variables": {}, "cwd": tmp_path}
    settings = BatchSettings.of(str(path), str(tmp_path / "out.jsonl"))
    with check_batch(settings, **given) as checked:
        submitted = replace(settings, input=replace(settings.input, input_digest=checked.input_digest))
    check_batch(submitted, **given).close()
    path.write_bytes(lines(10))
    with pytest.raises(LeapSerializationError, match="changed since the batch was submitted"):
        check_batch(submitted, **given)


def result(n: int, key: str) -> LineResult:
    complete = Complete(ChatMessage("assistant", f'<{n}> "error":{{'), GenerationFinishReason.STOP)
    return LineResult(key, f"id-{n}", "m", 1, response=complete.to_json())


def test_a_journal_reads_results_by_their_offsets(tmp_path):
    index = check_lines(InputRows("-", stdin=io.BytesIO(lines(300))), RequestReader()).index
    keys = [key_of(index.digest(n), "f") for n in range(300)]
    journal = Journal(tmp_path / "j")
    for n in [*range(0, 300, 2), 4, 6]:  # two are done twice: the newest counts
        journal.append(result(n, keys[n]))
    journal.append(LineResult(keys[1], "id-1", "m", 1, error={"code": "failed", "message": 'no "response":{'}))
    journal.append(LineResult("0" * 32, "gone", "m", 1, response=result(0, keys[0]).response))
    journal.close()
    with (tmp_path / "j").open("ab") as file:
        file.write(b'{"key": "torn')
    journal = Journal(tmp_path / "j")
    places = journal.index.places_of(b"".join(bytes.fromhex(key) for key in keys))
    for n in range(300):
        if n % 2:
            assert places[n] == -1
        else:
            assert journal.result_at(places[n]).custom_id == f"id-{n}"
    assert len(set(places)) == 151 and journal.index.count_without(index.ids) == 1
    assert len(journal.index) == 154
    journal.close()


def test_a_batch_can_wait_until_its_output_is_free(tmp_path):
    first = Journal(tmp_path / "j", tmp_path / "out")
    waited = threading.Event()
    opened: list[Journal] = []
    thread = threading.Thread(
        target=lambda: opened.append(Journal(tmp_path / "j", tmp_path / "out", while_waiting=waited.set))
    )
    thread.start()
    assert waited.wait(100) and not opened
    first.close()
    thread.join(100)
    opened[0].close()
    output = OutputFile(tmp_path / "out")
    output.open(lambda: iter(["a"]))

    def give_up() -> None:
        raise LeapUnavailableError("waited long enough")

    with pytest.raises(LeapUnavailableError, match="long enough"):
        OutputFile(tmp_path / "out", while_waiting=give_up).open(lambda: iter(()))
    output.close()


def test_results_wait_in_the_journal_until_earlier_ones_are_written(batch, results):
    """The first line is the last to be answered."""
    done_others = threading.Event()
    answered: list[str] = []

    def answer(text):
        if text == "0":
            assert done_others.wait(100)
        else:
            answered.append(text)
            if len(answered) == 99:
                done_others.set()
        return f"<{text}>"

    done, _ = batch([{"prompt": str(n)} for n in range(100)], "--format", "plain", "--concurrency", "4", answer=answer)
    assert done.code == 0 and [record["text"] for record in results()] == [f"<{n}>" for n in range(100)]
