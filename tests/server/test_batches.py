"""/v1/files and /v1/batches: which model answers which line, and whose they are. The queue is a list."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Collection, Mapping
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from leap_core import LeapModelNotFoundError, LeapSerializationError
from leap_core.batch.settings import BatchSettings
from leap_core.server.application import HANDLERS
from leap_core.server.endpoints.batches import BatchEndpoints
from leap_core.server.job_queue import BatchState, JobEndpoints
from leap_core.server.models.loaded_model import LoadRequest
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.server.records import Records, owner_of, page_of
from leap_core.testing import ScriptedModelRunner
from tests.support.random_models import write_random_model


class Queue:
    """Keeps what is submitted."""

    def __init__(self) -> None:
        self.submitted: list[BatchSettings] = []
        self.error: LeapSerializationError | None = None

    def submit(self, settings: BatchSettings, cwd: Path) -> str:
        if self.error is not None:
            raise self.error
        self.submitted.append(settings)
        return "job"

    def state(self, job: str) -> BatchState:
        return BatchState("queued")

    def cancel(self, job: str) -> None:
        pass

    def counts(self) -> Mapping[str, int]:
        return {}

    def jobs(self, limit: int, only: object = None) -> list[dict[str, object]]:
        return []


def line(model: str | None) -> dict[str, object]:
    body = {"messages": [{"role": "user", "content": "Hi"}]} | ({} if model is None else {"model": model})
    return {"custom_id": f"for-{model}", "method": "POST", "url": "/v1/chat/completions", "body": body}


class Server:
    """Files and batches over two served models."""

    def __init__(self, home: Path, names: tuple[str, ...]) -> None:
        self.home, self.names, self.queue = home, names, Queue()

    def __call__(self, *requests: tuple[str, str, dict[str, object]], owner: str = "") -> list[httpx.Response]:
        async def run() -> list[httpx.Response]:
            models = LoadedModels(lambda local, _: ScriptedModelRunner(model_id=local.model_id))
            for name in self.names:
                await models.load(LoadRequest(name))
            endpoints = BatchEndpoints(models, self.queue, self.home / "served", owner=owner)
            from leap_core.server.application import HANDLERS

            app = Starlette(routes=endpoints.routes(), exception_handlers=HANDLERS)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client:
                answers = [await client.request(method, path, **given) for method, path, given in requests]
            await models.close()
            return answers

        return asyncio.run(run())

    def upload(self, *models: str | None, owner: str = "") -> str:
        data = "".join(json.dumps(line(model)) + "\n" for model in models).encode()
        form = {"files": {"file": ("in.jsonl", io.BytesIO(data))}, "data": {"purpose": "batch"}}
        (answer,) = self(("POST", "/v1/files", form), owner=owner)
        return str(answer.json()["id"])

    def batch(self, *models: str | None, **fields: object) -> httpx.Response:
        body = {"input_file_id": self.upload(*models), "endpoint": "/v1/chat/completions", **fields}
        return self(("POST", "/v1/batches", {"json": body}))[0]


@pytest.fixture
def server(leap_home: Path) -> Server:
    for name in ("First-F16", "Second-F16"):
        (leap_home / "models" / name).mkdir(parents=True)
        write_random_model(leap_home / "models" / name / f"{name}.gguf")
    return Server(leap_home, ("First", "Second"))


def test_the_lines_say_which_of_several_models_answers(server: Server) -> None:
    assert server.batch("Second").json()["status"] == "in_progress"
    (settings,) = server.queue.submitted
    assert settings.model == "Second" and "second-f16" in map(str.lower, settings.input.answers_to or ())
    assert server.batch("nobody").status_code == 404 and server.batch(None).status_code == 404


def test_a_line_that_names_another_model_is_not_answered(server: Server) -> None:
    server.batch("Second", "First", None)
    reader = server.queue.submitted[0].reader()
    reader.check_model("second-F16")
    reader.check_model(None)
    for other in ("First", "first-f16", "gpt-4"):
        with pytest.raises(LeapModelNotFoundError, match="Second-F16 answers this batch|second-f16 answers"):
            reader.check_model(other)


def test_an_error_names_the_file_and_the_line_but_no_path(server: Server) -> None:
    file = server.upload("First")
    path = str(server.home / "served" / "files" / f"{file}.jsonl")
    server.queue.error = LeapSerializationError("no JSON", path=f"{path}, line 3")
    body = {"input_file_id": file, "endpoint": "/v1/chat/completions"}
    (error,) = server(("POST", "/v1/batches", {"json": body}))[0].json()["errors"]["data"]
    assert error["line"] == 3 and file in error["message"] and str(server.home) not in error["message"]


def test_files_belong_to_the_key_that_made_them(server: Server) -> None:
    mine, other = owner_of("mine"), owner_of("other")
    id = server.upload("First", owner=mine)
    listing = ("GET", "/v1/files", {})
    assert [each["id"] for each in server(listing, owner=mine)[0].json()["data"]] == [id]
    assert server(listing, owner=other)[0].json()["data"] == []
    for path in (f"/v1/files/{id}", f"/v1/files/{id}/content"):
        assert server(("GET", path, {}), owner=other)[0].status_code == 404
    assert server(("GET", "/v1/files?purpose=vision", {}), owner=mine)[0].json()["data"] == []
    assert (server.home / "served").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("all_jobs", [False, True])
def test_a_server_shows_and_cancels_only_its_own_jobs_unless_configured(tmp_path, all_jobs):
    class Jobs(Queue):
        def __init__(self) -> None:
            super().__init__()
            self.cancelled: list[str] = []

        def jobs(self, limit: int, only: Collection[str] | None = None) -> list[dict[str, object]]:
            return [{"id": id} for id in ids if only is None or id in only]

        def cancel(self, job: str) -> None:
            self.cancelled.append(job)

    ids = ["mine", "of messages", "of another command"]
    records = Records(tmp_path / "batches", "batch")
    records.write({"id": "batch_" + "0" * 24, "created_at": 1, "job": "mine"})
    messages = Records(tmp_path / "messages", "message batch")
    jobs = [{"id": "of messages", "n": 0, "error": None}, {"id": None, "n": 1, "error": ["api_error", "no model"]}]
    messages.write({"id": "msgbatch_" + "0" * 24, "created_at": 1, "jobs": jobs})
    queue = Jobs()
    endpoints = JobEndpoints(queue, None if all_jobs else [records, messages])
    app = Starlette(routes=endpoints.routes(), exception_handlers=HANDLERS)

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            listed = (await client.get("/leap/jobs")).json()["jobs"]
            assert [job["id"] for job in listed] == ids[: 3 if all_jobs else 2]
            codes = [(await client.post(f"/leap/jobs/{id}/cancel")).status_code for id in ids]
            assert codes == [200, 200, 200 if all_jobs else 404] and queue.cancelled == ids[: codes.count(200)]
            page = {"Origin": "http://127.0.0.1:9999"}
            assert (await client.get("/leap/jobs", headers=page)).status_code == 403
            assert (await client.post("/leap/jobs/mine/cancel", headers=page)).status_code == 403

    asyncio.run(ask())


def test_a_list_has_pages():
    items = [{"id": each} for each in "abcdef"]

    def page(cursor: str = "", **query: str) -> tuple[str, bool]:
        found, ends = page_of(items, query, 100, cursor)
        letters = "".join(each["id"] for each in found)
        assert (ends["first_id"], ends["last_id"]) == ((letters[0], letters[-1]) if letters else (None, None))
        return letters, ends["has_more"]

    assert page() == ("abcdef", False) and page(limit="2") == ("ab", True)
    assert page(after="b", limit="2") == ("cd", True) and page(after="d", limit="2") == ("ef", False)
    assert page(after="f") == ("", False) and page(after="unknown", limit="1") == ("a", True)
    assert page(before="d", limit="2") == ("bc", True) and page(before="b", limit="2") == ("a", False)
    assert page("_id", after_id="a", before_id="d", after="e") == ("bc", False)
    for wrong in ("0", "101", "-1", "two", "\N{SUPERSCRIPT TWO}", "9" * 5000):
        with pytest.raises(LeapSerializationError, match="from 1 to 100"):
            page(limit=wrong)
