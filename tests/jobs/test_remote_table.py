"""What a process of a worker asks of the worker's table arrives there, and comes back, as it was."""

from __future__ import annotations

import pytest

from jobs.table.batch_rows import BatchLine, StoredResult
from jobs.table.job import Claim, ClaimLostError, Ending, NewJob, State
from jobs.table.table import Table
from jobs.worker.remote_table import TableServer, WorkerCalls, from_json, remote_tables, to_json


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1, "a", None],
        b"\xff\x00",
        {("a", 1), ("b", 2)},
        {"kind": "Claim", "bytes": 1, "set": []},
        Claim("a", 1, "me"),
        Ending(State.FAILED, error={"type": "LeapError", "mapping": {}}),
        [BatchLine(1, "k", "d", b"{}"), BatchLine(2, "k", "d", None)],
        StoredResult(1, "k", True, 2, {"text": "kind"}),
    ],
)
def test_a_value_comes_back_equal(value):
    assert from_json(to_json(value)) == value


def test_a_remote_table_does_what_the_table_does(tmp_path):
    with Table(tmp_path / "jobs.db") as table:
        server = TableServer(table, table)
        calls = WorkerCalls(lambda message: calls.take(server.reply(message)))
        remote, output, _ = remote_tables(calls)
        (id,) = table.add([NewJob("generate", {"label": "x"})])
        assert remote.get(id) == table.get(id) and remote.get("none") is None
        with pytest.raises(ClaimLostError):
            output.write(Claim(id, 1, "nobody"), 0, [{"a": 1}])
        with pytest.raises(AttributeError):
            remote.remove([id])
        assert server.reply({"call": 1, "name": "table.remove", "arguments": to_json({})})["unexpected"]
        assert output.database.is_shared
