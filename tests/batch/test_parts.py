"""``leap batch --shard I/N`` and ``--merge N``: parts that are answered apart and put together."""

from __future__ import annotations

import pytest

from leap_core.batch.settings import Part
from leap_core.errors import LeapGenerationError, LeapOptionsError

MANY = [{"custom_id": f"id-{n}", "prompt": f"ä {n}"} for n in range(40)]
COUNT = 4


@pytest.fixture
def parts(batch):
    """Answer these parts of the lines; what each was asked."""

    def answer(lines, *args, numbers=range(1, COUNT + 1), **given) -> list[list[str]]:
        return [batch(lines, "--shard", f"{n}/{COUNT}", *args, **given)[1].asked for n in numbers]

    return answer


def texts(path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def test_merged_shards_equal_the_output_of_one_run_byte_for_byte(batch, parts, tmp_path):
    batch(MANY, "--format", "plain", output="one.jsonl")
    asked = parts(MANY, "--format", "plain")
    assert sorted(sum(asked, [])) == sorted(line["prompt"] for line in MANY) and all(asked)
    done, runner = batch(MANY, "--merge", str(COUNT), "--format", "plain")
    assert (done.code, runner.asked) == (0, []) and "40 lines: 40 answered, 0 failed" in done.stderr
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    assert (tmp_path / "out.3-of-4.jsonl.journal").exists()


@pytest.mark.parametrize("form", ["text", "csv", "openai"])
def test_every_output_format_can_be_merged(batch, parts, tmp_path, form):
    parts(MANY[:9], "--format", form)
    batch(MANY[:9], "--merge", str(COUNT), "--format", form)
    merged = texts(tmp_path / "out.jsonl")
    pieces = [line for n in range(1, COUNT + 1) for line in texts(tmp_path / f"out.{n}-of-4.jsonl")]
    header = {"custom_id,answer,error"} if form == "csv" else set()
    assert len(merged) == 9 + len(header) and set(merged) == set(pieces) | header


def test_a_line_stays_in_its_shard_when_lines_are_added(parts):
    before = parts(MANY[10:])
    after = parts([*MANY[:10], *MANY[10:]])
    assert sum(after, []) and not {line for asked in after for line in asked} & {x for asked in before for x in asked}


def test_a_shard_resumes_where_it_ended(batch, parts, tmp_path):
    failing = {line["prompt"]: LeapGenerationError("broken") for line in MANY[::2]}
    first = parts(MANY, answer=lambda text: failing.get(text, f"<{text}>"), numbers=[2])[0]
    again = parts(MANY, numbers=[2])[0]
    assert again and set(again) <= set(failing) and first and not set(again) & set(first)


def test_missing_lines_are_named_and_added_by_the_next_merge(batch, parts, tmp_path):
    batch(MANY, "--format", "plain", output="one.jsonl")
    asked = parts(MANY, "--format", "plain", numbers=[1, 2, 4])
    done, _ = batch(MANY, "--merge", str(COUNT), "--format", "plain")
    missing = [n for n, line in enumerate(MANY, start=1) if line["prompt"] not in sum(asked, [])]
    assert done.code == 8 and f"{len(missing)} not done" in done.stderr
    told = f"part 3 of 4: lines {', '.join(map(str, missing))} have no result (--shard 3/4 answers what is missing)"
    assert told in " ".join(done.stderr.replace("\n", " ").split())
    one = texts(tmp_path / "one.jsonl")
    assert texts(tmp_path / "out.jsonl") == [line for n, line in enumerate(one, start=1) if n not in missing]
    parts(MANY, "--format", "plain", numbers=[3])
    done, _ = batch(MANY, "--merge", str(COUNT), "--format", "plain")
    assert done.code == 0 and texts(tmp_path / "out.jsonl") == one


def test_one_process_resumes_from_merged_shards(batch, parts):
    asked = parts(MANY, numbers=[1, 2])
    batch(MANY, "--merge", str(COUNT))
    done, runner = batch(MANY)
    assert done.code == 0 and sorted(runner.asked + sum(asked, [])) == sorted(line["prompt"] for line in MANY)


def test_failed_lines_are_merged_in_the_form_of_one_run(batch, parts, tmp_path):
    def answer(text: str):
        return LeapGenerationError("broken") if text.endswith("7") else f"<{text}>"

    args = ("--format", "plain", "--errors", "failed.jsonl")
    batch(MANY, *args, answer=answer, output="one.jsonl")
    one = sorted(texts(tmp_path / "failed.jsonl"))
    parts(MANY, *args, answer=answer)
    done, _ = batch(MANY, "--merge", str(COUNT), *args)
    assert done.code == 8 and "36 answered, 4 failed" in done.stderr
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    assert sorted(texts(tmp_path / "failed.jsonl")) == one and len(one) == 4
    parts(MANY, *args)
    done, _ = batch(MANY, "--merge", str(COUNT), *args)
    assert done.code == 0 and len(texts(tmp_path / "out.jsonl")) == 40 and not texts(tmp_path / "failed.jsonl")


def test_a_merge_reads_the_results_so_far_of_a_running_shard(batch, parts, tmp_path):
    parts(MANY)
    journal = tmp_path / "out.2-of-4.jsonl.journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-5])
    done, _ = batch(MANY, "--merge", str(COUNT))
    assert done.code == 8 and "1 not done" in done.stderr and journal.read_bytes() == whole[:-5]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--shard", "3"), "write it as 3/7"),
        (("--shard", "0/4"), "parts are counted from 1 to 4"),
        (("--shard", "5/4"), "parts are counted from 1 to 4"),
        (("--shard", "1/4", "--merge", "4"), "--shard cannot be combined with --merge"),
        (("--shard", "1/4", "-o", "-"), "--shard needs -o FILE"),
        (("--merge", "4", "-o", "/dev/null"), "--merge needs a file"),
    ],
)
def test_contradictory_options_are_refused(batch, args, told):
    done, runner = batch(MANY, *args)
    assert done.code == 2 and told in " ".join(done.stderr.split()) and runner.asked == []


def test_a_shard_without_lines_is_an_empty_output(batch, parts, tmp_path):
    lines = MANY[:1]
    parts(lines)
    sizes = sorted((tmp_path / f"out.{n}-of-4.jsonl").stat().st_size for n in range(1, COUNT + 1))
    assert sizes[:3] == [0, 0, 0] and sizes[3]
    assert batch(lines, "--merge", str(COUNT))[0].code == 0


def test_files_of_shards_keep_the_suffix_of_their_format():
    part = Part(3, 7)
    assert [part.path(name) for name in ("a/out.csv", "out", "my.out.jsonl.gz", "out.gz")] == [
        "a/out.3-of-7.csv",
        "out.3-of-7",
        "my.out.3-of-7.jsonl.gz",
        "out.3-of-7.gz",
    ]
    with pytest.raises(LeapOptionsError):
        Part(8, 7)


def test_shards_are_about_equal_in_size():
    digests = [f"{n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}" for n in range(7000)]
    sizes = [sum(Part(number, 7).has(digest) for digest in digests) for number in range(1, 8)]
    assert sum(sizes) == 7000 and min(sizes) > 800
