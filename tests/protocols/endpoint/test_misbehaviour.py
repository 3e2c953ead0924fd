"""Everything that an endpoint can do instead of answering: one line each, asked again where that may help."""

from __future__ import annotations

import base64
import gc
import gzip
import io
import json
import threading
import time
import zlib
from contextlib import suppress

import pytest

from leap_core import ChatMessage, GenerationOptions, Leap, LeapEndpointError, LeapError, LeapOptionsError
from leap_core.conversation.responses import Complete
from leap_core.conversation.streams import last_of
from leap_core.errors import LeapGenerationPromptExceedContextLengthError
from tests.support.lengths import usually

from .conftest import KEY, QUICK, SOON_TIRED
from .fake_server import chunk, fails, fake_endpoint, hangs_up, page, redirects, says, sleeps, streams

DONE = b"data: [DONE]\n\n"
ENDLESS = 200.0
"""Seconds that no client waits."""
ASKED = [ChatMessage("user", "What is the capital of France?")]


def ask(runner, **options) -> Complete:
    return last_of(runner.start(ASKED, options=GenerationOptions(**options)))


def error_of(runner, **options) -> LeapError:
    with pytest.raises(LeapError) as caught:
        ask(runner, **options)
    assert "\n" not in caught.value.message and KEY not in f"{caught.value.message} {caught.value.hint}"
    return caught.value


FOR_GOOD = {
    "401": (fails(401, f"the key {KEY} is wrong"), "does not accept the key (401): the key *** is wrong"),
    "403": (fails(403), "does not allow it (403): no"),
    "404": (fails(404, "no model m"), "knows no model 'm', or no chats at"),
    "page": (page(), "answered with a web page (200 OK)"),
    "page of 404": (page(404), "answered with a web page (404 Not Found)"),
    "type": (lambda h: h.send(200, "image/png", b"x"), "answered with image/png, not with an answer"),
    "spent": (fails(429, "pay", code="insufficient_quota"), "answers no more (429): pay"),
    "400": (fails(400, "two\nlines\x1b[31m"), "refuses the request (400 Bad Request): two lines [31m"),
    "filter": (says("x", "content_filter"), "filter ended the answer"),
}


@pytest.mark.parametrize("case", FOR_GOOD)
def test_permanent_errors_are_not_retried(fake, runner, case):
    fake.always, words = FOR_GOOD[case]
    assert words in error_of(runner).message
    assert len(fake.requests) == 1


MAY_PASS = {
    **{str(status): fails(status, "busy") for status in (408, 409, 429, 500, 502, 503, 504)},
    "page of 502": page(502),
    "hangs up": hangs_up,
    "empty stream": streams(),
    "no JSON": streams(then=b"data: {nonsense\n\n"),
    "error in stream": streams({"error": {"message": "overloaded"}}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MAY_PASS)
def test_temporary_errors_are_retried_and_counted(fake, runner, case):
    fake.behaviours.append(MAY_PASS[case])
    complete = ask(runner)
    assert complete.full_message.text == "Paris." and len(fake.requests) == 2
    assert "asked 2 times" in complete.warnings[0]


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in MAY_PASS if case != "429"])
def test_retries_are_bounded(fake, runner, case):
    fake.always = MAY_PASS[case]
    error = error_of(runner)
    assert isinstance(error, LeapEndpointError) and len(fake.requests) == 1 + QUICK.retries


def test_a_stream_that_breaks_in_the_middle_is_an_error(fake, runner):
    fake.always = streams(chunk({"content": "Par"}))
    error = error_of(runner)
    assert "ended before the answer was complete" in error.message and len(fake.requests) == 1
    assert isinstance(error, LeapEndpointError) and error.may_pass and error.of_request


@pytest.mark.slow
def test_silence_is_retried_before_an_answer_and_ends_it_in_the_middle(fake, leap_home):
    def behave(handler):
        handler.begin_stream()
        handler.event(chunk({"content": "Par"}))
        sleeps(ENDLESS)(handler)

    fake.behaviours.append(sleeps(ENDLESS))
    with Leap.connect(fake.url, model="m", patience=SOON_TIRED) as runner:
        complete = ask(runner)
        assert complete.full_message.text == "Paris." and len(fake.requests) >= 2
        assert f"asked {len(fake.requests)} times" in complete.warnings[0]
        fake.always = behave
        assert "sent nothing for 0.3 s" in error_of(runner).message


@pytest.mark.slow
def test_all_requests_respect_retry_after(fake, runner):
    fake.behaviours.append(fails(429, Retry_After="1"))
    threads = [threading.Thread(target=ask, args=(runner,)) for _ in range(3)]
    threads[0].start()
    while not runner._connection._hold_back._until:
        time.sleep(0.01)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fake.requests) == 4 and all(at - fake.times[0] > 0.95 for at in fake.times[1:])


def test_a_wait_that_is_too_long_is_an_error(fake, runner):
    fake.always = fails(429, "slow down", Retry_After="3600")
    assert "failed with 429 Too Many Requests: slow down" in error_of(runner).message


def test_an_unreachable_address_is_an_error(leap_home):
    with fake_endpoint() as fake:
        url = fake.url
    with Leap.connect(url, model="m", patience=QUICK) as runner:
        error = error_of(runner)
    assert "cannot connect to 127.0.0.1" in error.message and not error.of_request


def test_a_redirect_to_another_server_gets_neither_prompt_nor_key(fake, runner):
    with fake_endpoint() as other:
        fake.always = redirects(f"{other.url}/chat/completions")
        assert "where neither prompt nor key go" in error_of(runner).message
        assert other.requests == []


@pytest.mark.parametrize(("port", "wrong"), [("99999999", "Port out of range"), ("x", "Invalid port: 'x'")])
def test_a_redirect_to_what_is_no_address_says_what_is_wrong_with_it(fake, runner, port, wrong):
    fake.always = redirects(f"http://127.0.0.1:{port}/")
    assert f"redirects to what is no address ({wrong}" in error_of(runner).message
    assert len(fake.requests) == 1


def test_a_redirect_on_the_same_server_is_followed(fake, runner):
    fake.behaviours.append(redirects("/v1/elsewhere"))
    assert ask(runner).full_message.text == "Paris."
    assert [path for path, *_ in fake.requests] == ["/v1/chat/completions", "/v1/elsewhere"]


def test_a_redirect_in_circles_ends(fake, runner):
    fake.always = redirects("/v1/chat/completions")
    assert "in circles" in error_of(runner).message


def test_a_field_that_is_refused_is_named(fake, runner):
    fake.always = fails(400, "Unrecognized request argument supplied: top_k", param="top_k")
    error = error_of(runner, top_k=5)
    assert isinstance(error, LeapOptionsError) and error.option == "top_k" and "refuses it (400)" in error.message


@pytest.mark.parametrize("field", ["max_completion_tokens", "stream_options"])
def test_renamed_fields_are_sent_under_their_other_name(fake, runner, field):
    fake.behaviours.append(fails(400, f"Unsupported parameter: use '{field}'", param="max_tokens"))
    ask(runner, max_tokens=5)
    ask(runner, max_tokens=5)
    first, second, third = (body for _, _, body in fake.requests)
    assert "max_tokens" in first and "stream_options" in first
    for body in (second, third):
        assert ("stream_options" in body) == (field != "stream_options")
        assert body.get("max_completion_tokens", body.get("max_tokens")) == 5


SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
INVALID = fails(400, "Invalid schema for response_format 'answer'", param="response_format")


@pytest.mark.parametrize("before", [False, True])
def test_a_schema_that_is_refused_alone_changes_nothing_for_others(fake, runner, before):
    fake.always = says('{"n": 1}')
    if before:
        ask(runner, json_schema_constraint=SCHEMA)
    fake.behaviours.extend([INVALID] if before else [INVALID, fails(400, "no field schema", param="schema")])
    assert "Invalid schema" in error_of(runner, json_schema_constraint=SCHEMA).message
    ask(runner, json_schema_constraint=SCHEMA)
    kinds = [body["response_format"]["type"] for _, _, body in fake.requests]
    assert kinds == ["json_schema"] * 3 if before else ["json_schema", "json_object", "json_schema"]


def test_an_endpoint_without_schemas_gets_its_own_format_from_then_on(fake, runner):
    fake.always = says('{"n": 1}')
    fake.behaviours.append(INVALID)
    for _ in range(2):
        ask(runner, json_schema_constraint=SCHEMA)
    kinds = [body["response_format"]["type"] for _, _, body in fake.requests]
    assert kinds == ["json_schema", "json_object", "json_object"]


def test_a_prompt_that_is_too_long_has_both_counts(fake, runner):
    said = "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens."
    fake.always = fails(400, said, code="context_length_exceeded")
    error = error_of(runner)
    assert isinstance(error, LeapGenerationPromptExceedContextLengthError)
    assert (error.prompt_tokens, error.context_size) == (5000, 4096)


def test_options_that_an_endpoint_lacks_are_refused_by_name(fake, runner):
    for name, value in (("regex_constraint", "a+"), ("grammar_constraint", 'start: "a"'), ("repeat_last_n", 5)):
        assert error_of(runner, **{name: value}).option == name
    assert fake.requests == []


@pytest.mark.parametrize("owner", ["leap", "somebody", None])
def test_leaps_own_fields_are_sent_only_to_leap(fake, runner, owner):
    """Strict endpoints refuse a field that they do not know, and no other repeats less for it."""
    fake.models = [{"id": "m", "owned_by": owner}] if owner else []
    options = GenerationOptions(temperature=0.5, repetition_detection=False)
    assert last_of(runner.start(ASKED, (), options)).full_message.text == "Paris."
    last_of(runner.start_text("Once", options))
    ask(runner, temperature=0.5)
    sent = [body.get("repetition_detection") for _, _, body in fake.requests]
    assert sent == ([False, False, None] if owner == "leap" else [None] * 3)
    assert [body["temperature"] for _, _, body in fake.requests] == [0.5] * 3


@pytest.mark.slow
def test_stop_before_the_first_piece_ends_at_once(fake, leap_home):
    fake.always = sleeps(ENDLESS)
    with Leap.connect(fake.url, model="m") as runner:
        stream = runner.create_conversation().generate_response("Hello")
        threading.Timer(0.1, stream.stop).start()
        *_, end = stream
    assert end.finish_reason.value == "interrupted"


def test_a_stream_that_stays_open_after_its_end_leaves_nothing_behind(fake, leap_home):
    """No generator of HTTP is left to a loop that has ended, which Python 3.13 warns of."""

    def behave(handler):
        handler.begin_stream()
        events = [chunk({"content": "Paris."}), chunk({}, "stop")]
        handler.wfile.write(b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in events) + DONE)
        over.wait(ENDLESS)

    over = threading.Event()
    fake.always = behave
    for _ in range(5):
        with Leap.connect(fake.url, model="m", patience=QUICK) as runner:
            assert ask(runner).full_message.text == "Paris."
    over.set()
    gc.collect()


def squeezed(times: int, size: int):
    """A JSON answer of ``size`` spaces, compressed so many times over."""

    def behave(handler) -> None:
        packer, body = zlib.compressobj(1, wbits=31), b""
        for _ in range(size // 2**20):
            body += packer.compress(b" " * 2**20)
        body += packer.flush()
        for _ in range(times - 1):
            body = gzip.compress(body)
        handler.send(200, "application/json", body, Content_Encoding=", ".join(["gzip"] * times))

    return behave


@pytest.mark.slow
@pytest.mark.parametrize("times", usually([1], [1, 2]))
def test_a_compression_bomb_takes_little_memory(fake, runner, times):
    import resource

    fake.always = squeezed(times, 2**30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error_of(runner)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024


def test_an_endless_stream_is_stopped(fake, runner, monkeypatch):
    from leap_core.protocols.endpoint import transport

    monkeypatch.setattr(transport, "LONGEST_ANSWER", 2**20)
    sent = []

    def behave(handler) -> None:
        handler.begin_stream()
        with suppress(OSError):
            while len(sent) < 200:
                sent.append(handler.event(chunk({"content": "x" * 2**16})))

    fake.always = behave
    assert "without an end" in error_of(runner).message and len(fake.requests) == 1 and len(sent) < 200


def test_an_answer_that_is_compressed_is_read(fake, runner):
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Paris."}, "finish_reason": "stop"}]})
    for encoding, packed in (("gzip", gzip.compress(body.encode())), ("deflate", zlib.compress(body.encode()))):
        fake.always = lambda h, e=encoding, p=packed: h.send(200, "application/json", p, Content_Encoding=e)
        assert ask(runner).full_message.text == "Paris."
    fake.always = lambda h: h.send(200, "application/json", b"x", Content_Encoding="br")
    assert "not asked for" in error_of(runner).message


def test_further_headers_a_path_and_fields_go_with_every_request(fake, leap_home):
    with Leap.connect(
        fake.url, model="m", path="/api/chat", headers={"X-Title": "leap"}, body={"top_a": 0.5, "transforms": ["x"]}
    ) as runner:
        assert ask(runner, temperature=0.5).full_message.text == "Paris."
    path, headers, body = fake.requests[0]
    assert path == "/v1/api/chat" and headers["x-title"] == "leap"
    assert (body["top_a"], body["transforms"], body["temperature"]) == (0.5, ["x"], 0.5)
    for wrong in ({"path": "api"}, {"path": "/a b"}, {"headers": {"a b": "c"}}, {"headers": {"a": "b\nc: d"}}):
        with pytest.raises(LeapOptionsError):
            Leap.connect(fake.url, **wrong)


def test_a_picture_goes_to_an_endpoint_upright_and_without_what_the_camera_wrote(fake, runner):
    from PIL import Image as pillow

    from leap_core.conversation.messages import Image, Text

    picture = pillow.new("RGB", (64, 32), "red")
    sent = []
    for orientation in (6, 1):
        exif = pillow.Exif()
        exif[0x0112] = orientation
        exif[0x010F] = "Camera of me"
        exif.get_ifd(0x8825)[1] = "N"
        output = io.BytesIO()
        picture.save(output, "JPEG", exif=exif, comment=b"at home")
        ask_with = ChatMessage("user", [Image(output.getvalue()), Text("What is it?")])
        last_of(runner.start([ask_with]))
        url = fake.requests[-1][2]["messages"][0]["content"][0]["image_url"]["url"]
        data = base64.b64decode(url.partition(",")[2])
        assert b"Camera" not in data and b"Exif" not in data and b"at home" not in data
        sent.append(pillow.open(io.BytesIO(data)))
        sent[-1].load()
    assert [each.size for each in sent] == [(32, 64), (64, 32)]


def test_pages_that_an_endpoint_refuses_are_left_out(fake, runner):
    """However late the refusal comes; a second one is the error."""
    from PIL import Image as pillow

    from leap_core.conversation.messages import Image, PagePicture, Text

    page = PagePicture(Image.from_pil_image(pillow.new("RGB", (8, 8))).data, "a.pdf", 2)
    message = ChatMessage("user", [page, Text("How much?")])
    complete = last_of(runner.start([message]))
    assert complete.left_out == () and len(fake.requests) == 1
    assert set(fake.requests[0][2]["messages"][0]["content"][0]) == {"type", "image_url"}
    fake.behaviours.append(fails(400, "no pictures"))
    complete = last_of(runner.start([message]))
    assert complete.left_out == ("page 2 of a.pdf is a picture and was left out",)
    assert fake.requests[-1][2]["messages"][0]["content"] == "How much?" and len(fake.requests) == 3
    fake.always = fails(400, "no")
    with pytest.raises(LeapEndpointError, match="refuses the request"):
        last_of(runner.start([message]))
    assert len(fake.requests) == 5


def test_an_endpoint_of_this_machine_is_reached_past_a_proxy(fake, runner, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert ask(runner).full_message.text == "Paris."


def test_a_proxy_that_needs_a_package_is_named(fake, runner, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5h://127.0.0.1:9")
    error = error_of(runner)
    assert "$ALL_PROXY" in error.message and error.message.count("httpx[socks]") == 1
