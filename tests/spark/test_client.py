"""The client against a server that breaks: cut streams are resumed, a busy broker is asked again, all with a bound."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from esker.spark.client import Client, client
from esker.spark.errors import DataLoss, EskerSparkError, Refused, Unreachable
from esker.spark.events import EventSlice, read_slice
from esker.spark.jobs import JobSlice, read_jobs
from esker.spark.options import Choice, Connection, ReadOptions, read_options
from esker.spark.plan import Slice, ask_plan
from esker.spark.records import read_records
from esker.spark.schemas import EVENTS

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
Reply = Callable[[BaseHTTPRequestHandler, dict[str, str]], None]


@contextmanager
def _server(*replies: Reply) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Answers one request after the other with `replies`, the last one for ever."""
    waiting = list(replies)
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            asked.append({"path": urlsplit(self.path).path, **query})
            (waiting.pop(0) if len(waiting) > 1 else waiting[0])(self, query)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: the tests tell what matters."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _offsets(first: int, last: int) -> bytes:
    """An Arrow stream of offsets in batches of ten, without its end."""
    schema = pa.schema([pa.field("offset", pa.int64(), False)])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for start in range(first, last + 1, 10):
            writer.write_batch(pa.record_batch([pa.array(range(start, min(start + 10, last + 1)))], schema=schema))
    return sink.getvalue().removesuffix(END)


def _stream(body: bytes, whole: bool = True, chunked_end: bool = True) -> Reply:
    def reply(handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        handler.send_response(200)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        data = body + END if whole else body
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) + (b"0\r\n\r\n" if chunked_end else b""))
        handler.close_connection = not chunked_end

    return reply


def _error(status: int, code: str, message: str = "no", detail: object = None) -> Reply:
    def reply(handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        body = json.dumps({"error": {"code": code, "message": message, "detail": detail}}).encode()
        handler.send_response(status)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return reply


def _text(status: int, text: bytes) -> Reply:
    def reply(handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        handler.send_response(status)
        handler.send_header("content-length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    return reply


def _hang_up(handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
    handler.close_connection = True


def _options(url: str, retry_ms: int = 5000, **more: str) -> ReadOptions:
    return read_options({"endpoint": url, "subscribe": "t", "retryTimeoutMs": str(retry_ms), **more}, streaming=False)


def _read(options: ReadOptions, end: int = 41) -> list[int]:
    part = Slice("t", 0, 7, 1, end, 1, (), None, "n")
    return [n for batch in read_records(part, ["offset"], options) for n in batch.column("offset").to_pylist()]


@pytest.mark.parametrize(
    "broken",
    [
        _stream(_offsets(1, 20), whole=False),  # a proper end, but not Arrow's
        _stream(_offsets(1, 20), whole=False, chunked_end=False),  # the connection breaks between two batches
        _stream(_offsets(1, 30)[:-40], whole=False, chunked_end=False),  # and within one
        _stream(_offsets(1, 30)[:-40], whole=False),
    ],
)
def test_a_stream_that_is_cut_goes_on_behind_the_last_record(broken: Reply) -> None:
    with _server(broken, _stream(_offsets(21, 40))) as (url, asked):
        assert _read(_options(url)) == list(range(1, 41))
    assert [(one["from"], one["to"], one["epoch"]) for one in asked] == [("1", "41", "7"), ("21", "41", "7")]


def test_a_cut_behind_the_last_record_needs_no_further_request() -> None:
    with _server(_stream(_offsets(1, 40), whole=False)) as (url, asked):
        assert _read(_options(url)) == list(range(1, 41))
    assert len(asked) == 1


def test_the_time_that_spark_takes_for_a_batch_is_not_taken_for_silence() -> None:
    with _server(_stream(_offsets(1, 20), whole=False), _stream(_offsets(21, 40))) as (url, _):
        found = []
        for batch in read_records(Slice("t", 0, 7, 1, 41, 1, (), None, "n"), ["offset"], _options(url, 400)):
            found += batch.column("offset").to_pylist()
            time.sleep(0.3)  # longer, over both batches, than the client would try
    assert found == list(range(1, 41))


def test_a_stream_that_never_gets_on_is_given_up() -> None:
    with _server(_stream(b"", whole=False)) as (url, _), pytest.raises(Unreachable, match="was cut at offset 1"):
        _read(_options(url, 300))


def test_a_busy_broker_and_a_lost_connection_are_tried_again() -> None:
    with _server(_error(503, "not_ready"), _hang_up, _error(429, "throttled"), _stream(_offsets(1, 40))) as (
        url,
        asked,
    ):
        assert len(_read(_options(url))) == 40
    assert len(asked) == 4


def test_a_broker_that_stays_busy_is_told_in_its_own_words() -> None:
    with (
        _server(_error(503, "not_ready", "still\nloading")) as (url, _),
        pytest.raises(Refused, match=r"still loading \(not_ready\)"),
    ):
        _read(_options(url, 300))


def test_the_next_endpoint_is_asked_when_one_is_gone() -> None:
    with _server(_stream(_offsets(1, 40))) as (url, asked):
        assert len(_read(_options(f"127.0.0.1:1,{url}"))) == 40
    assert len(asked) == 1


def test_data_loss_and_a_stale_epoch_are_explained() -> None:
    gaps = {"gaps": [{"first": 3, "last": 9, "reason": "ttl"}]}
    with (
        _server(_error(410, "data_loss", detail=gaps)) as (url, _),
        pytest.raises(DataLoss, match=r"topic 't', partition 0 are gone: offsets 3 to 9 \(their age\)"),
    ):
        _read(_options(url))
    with (
        _server(_error(409, "stale_epoch")) as (url, _),
        pytest.raises(EskerSparkError, match="deleted and made again: the offsets are of epoch 7"),
    ):
        _read(_options(url))


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (_text(404, b"<html>not here</html>"), "status 404 from http.*does not look like Esker's"),
        (_text(302, b""), "status 302"),
        (_text(200, b"not json"), "option endpoint: no broker answers"),
        (_text(200, b"{}"), "the plan of the broker cannot be read"),
        (_text(200, b'{"node":1,"position":"x","now_ms":1,"archive":null,"topics":[],"missing":[]}'), "cannot be read"),
    ],
)
def test_something_else_at_the_endpoint_is_told(reply: Reply, said: str) -> None:
    with _server(reply) as (url, _), pytest.raises(EskerSparkError, match=said):
        ask_plan(Client(Connection((url,), retry_ms=200)), Choice(names=("t",)))


def test_a_file_outside_the_archive_is_not_taken_from_a_plan() -> None:
    part = {
        "partition": 0, "earliest": 1, "next": 9, "hot_from": 5,
        "files": [{"path": "records/../../secrets", "first": 1, "last": 4}],
    }  # fmt: skip
    topic = {"topic": "t", "type": "log", "epoch": 1, "partitions": [part]}
    plan = {"node": "n", "position": 1, "now_ms": 1, "archive": "/a", "topics": [topic], "missing": []}
    with (
        _server(_text(200, json.dumps(plan).encode())) as (url, _),
        pytest.raises(EskerSparkError, match="a file outside the archive"),
    ):
        ask_plan(Client(Connection((url,))), Choice(names=("t",)))


def test_a_chunk_of_a_snapshot_is_passed_over_as_far_as_it_had_come() -> None:
    with _server(_stream(_offsets(1, 20), whole=False), _stream(_offsets(1, 40))) as (url, _):
        found = read_jobs(JobSlice("q", "s", (0,)), _options(url))
        assert [n for batch in found for n in batch.column("offset").to_pylist()] == list(range(1, 41))
    with (
        _server(_error(404, "snapshot_gone")) as (url, _),
        pytest.raises(EskerSparkError, match="load the table again"),
    ):
        list(read_jobs(JobSlice("q", "s", (0,)), _options(url)))


def _places(*places: tuple[int, int]) -> bytes:
    sink = io.BytesIO()
    columns = {"position": [place[0] for place in places], "ordinal": [place[1] for place in places]}
    batch = pa.record_batch(columns)
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().removesuffix(END)


def test_events_that_are_cut_within_a_position_go_on_with_its_next_row() -> None:
    first, second = _places((1, 0), (2, 0), (2, 1)), _places((2, 0), (2, 1), (2, 2), (3, 0))
    with _server(_stream(first, whole=False), _stream(second)) as (url, asked):
        options = read_options({"endpoint": url, "table": "events"}, streaming=False)
        schema = StructType([EVENTS["position"], EVENTS["ordinal"]])
        found = read_slice(EventSlice(1, 4, None, None, "n"), schema, options)
        rows = [tuple(row.values()) for batch in found for row in batch.to_pylist()]
    assert rows == [(1, 0), (2, 0), (2, 1), (2, 2), (3, 0)]
    assert [one["from"] for one in asked] == ["1", "2"]


def test_a_client_is_kept_for_its_connection() -> None:
    one = Connection(("http://127.0.0.1:1",), "a")
    assert client(one) is client(Connection(("http://127.0.0.1:1",), "a"))
    assert client(one) is not client(Connection(("http://127.0.0.1:1",), "b"))
