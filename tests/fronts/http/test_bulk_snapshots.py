"""Snapshots of queues over HTTP: exact at their position, bounded, and gone when they should be."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from random import Random
from threading import Event
from typing import NamedTuple

import httpx
import pytest
import redis

from esker.columns.jobs import Source
from esker.engine.events import decode_batch
from esker.engine.machine import Machine
from esker.engine.queues import snapshot as engine_snapshot
from esker.engine.queues.job import JobState
from esker.engine.queues.snapshot import Piece
from esker.journal.file import FileJournal
from esker.node import snapshots
from esker.node.directory import FREE_BYTES_MIN
from esker.node.settings import Settings
from esker.testing.broker import Broker
from tests.columns.streams import whole
from tests.fronts.http.streams.wire import eventually
from tests.fronts.http.web import Web

Row = dict[str, object]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few jobs make many slices and chunks."""
    monkeypatch.setattr(snapshots, "CHUNK_JOBS", 10)
    monkeypatch.setattr(engine_snapshot, "SLICE_SEQS", 4)


@pytest.fixture
def held_back(small_chunks: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Until it is set, no chunk is written: then the walk stops after the first few."""
    released = Event()
    write = snapshots._write_chunk

    def wait(path: Path, source: Source, pieces: list[Piece]) -> Path:
        assert released.wait(30)
        return write(path, source, pieces)

    monkeypatch.setattr(snapshots, "_write_chunk", wait)
    yield released
    released.set()


def checkpoint(client: redis.Redis) -> None:
    client.execute_command("BGREWRITEAOF")  # type: ignore[no-untyped-call]
    eventually(lambda: _saved(client.info()))


def _saved(told: dict[str, object]) -> bool:
    return told["checkpoint_position"] == told["journal_position"] and not told["checkpoint_in_progress"]


def take(web: Web, topic: str, status: int = 201, **wanted: object) -> Row:
    return web.ask("POST", f"/v0/topics/{topic}/snapshots", wanted, status)


_numbers = count()


def another() -> dict[str, int]:
    """A wish that takes all jobs and that nobody had before: the same one would get the same snapshot."""
    return {"until_ms": (1 << 50) + next(_numbers)}


def chunk(web: Web, taken: Row, number: int) -> list[Row]:
    response = web.client.get(f"/v0/snapshots/{taken['snapshot']}/{number}")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/vnd.apache.arrow.stream"
    return whole(response.content)


def fetch(web: Web, taken: Row) -> list[Row]:
    chunks = taken["chunks"]
    assert isinstance(chunks, int)
    return [row for number in range(chunks) for row in chunk(web, taken, number)]


def delete(web: Web, taken: Row) -> None:
    web.ask("DELETE", f"/v0/snapshots/{taken['snapshot']}")


def queue(web: Web, topic: str, *payloads: object, **config: object) -> None:
    web.ask("PUT", f"/v0/topics/{topic}", {"type": "queue", **config}, 201)
    if payloads:
        web.write(topic, *payloads)


def refusal(web: Web, method: str, path: str, status: int, body: object = None) -> tuple[str, str]:
    refused = web.refused(method, path, body, status=status)
    return refused.code, refused.message


# -- what is told


def test_a_snapshot_is_the_queue_as_it_was_when_it_was_taken(web: Web, topic: str) -> None:
    web.put(topic, type="queue")
    records = [{"data": {"n": n}, "tag": f"t{n}", "node": "n", "meta": {"k": "ü"}} for n in range(3)]
    web.ask("POST", f"/v0/topics/{topic}", {"records": [*records, {"data": "bare"}]})
    (job,) = web.claim(topic, "w", max=1)
    taken = take(web, topic)
    web.ask("POST", f"/v0/topics/{topic}/ack", {"node": "w", "seqs": [1]})
    web.write(topic, "later")
    rows = fetch(web, taken)
    assert (taken["jobs"], taken["chunks"]) == (4, 1)
    assert [row["offset"] for row in rows] == [1, 2, 3, 4]
    first, second, _, bare = rows
    assert (first["state"], first["holder"], first["attempts"]) == ("leased", "w", 1)
    assert f"lease_{first['lease']}" == job["lease_id"]
    assert (second["state"], second["lease"], second["tag"], second["meta"]) == ("ready", None, "t1", '{"k":"ü"}')
    assert (bare["tag"], bare["meta"], bare["value"], bare["size"]) == (None, None, b'"bare"', 6)
    delete(web, taken)


def test_chunks_together_hold_every_job_once(small_chunks: None, one: Web, topic: str) -> None:
    queue(one, topic, *range(95))
    taken = take(one, topic, columns=["offset"])
    assert taken["chunks"] == 10
    assert [row["offset"] for row in fetch(one, taken)] == list(range(1, 96))
    delete(one, taken)


def test_an_empty_queue_has_no_chunks(one: Web, topic: str) -> None:
    queue(one, topic)
    taken = take(one, topic)
    assert (taken["jobs"], taken["chunks"]) == (0, 0)
    delete(one, taken)


def test_filters_and_columns_narrow_what_comes(shared_broker: Broker, one: Web, topic: str) -> None:
    queue(one, topic)
    records = [{"data": n, "tag": tag} for n, tag in enumerate(("order-1", "order-2", "other"))]
    one.ask("POST", f"/v0/topics/{topic}", {"records": records})
    taken = take(one, topic, columns=["tag", "state"], tag_prefix="order-", states=["ready"])
    assert fetch(one, taken) == [{"tag": "order-1", "state": "ready"}, {"tag": "order-2", "state": "ready"}]
    assert taken["jobs"] == 3  # of the whole queue
    none = take(one, topic, priority_min=1)
    assert fetch(one, none) == []
    for each in (taken, none):
        delete(one, each)


def test_jobs_of_the_redis_front_are_told_with_their_bytes(shared_broker: Broker, one: Web, topic: str) -> None:
    client = redis.Redis(port=shared_broker.resp_port)
    client.execute_command("ADDJOB", topic, b"\x00\xff", 0, "DELAY", 1, "RETRY", 60)  # type: ignore[no-untyped-call]
    taken = take(one, topic)
    (row,) = fetch(one, taken)
    assert (row["value"], row["state"]) == (b"\x00\xff", "delayed")
    assert row["due"] is not None
    delete(one, taken)
    client.close()


def test_two_snapshots_of_a_queue_do_not_disturb_each_other(small_chunks: None, one: Web, topic: str) -> None:
    queue(one, topic, *range(40))
    first = take(one, topic, columns=["offset", "state"])
    one.ask("POST", f"/v0/topics/{topic}/claim", {"node": "w", "max": 40})
    second = take(one, topic, columns=["offset", "state"])
    one.ask("POST", f"/v0/topics/{topic}/ack", {"node": "w", "seqs": list(range(1, 41))})
    assert {row["state"] for row in fetch(one, first)} == {"ready"}
    assert {row["state"] for row in fetch(one, second)} == {"leased"}
    for each in (first, second):
        delete(one, each)


def test_an_ephemeral_queue_has_snapshots_too(one: Web, topic: str) -> None:
    queue(one, topic, "a", durability="ephemeral")
    taken = take(one, topic)
    assert [row["value"] for row in fetch(one, taken)] == [b'"a"']
    delete(one, taken)


def test_the_position_covers_everything_that_was_answered_before(own: Broker, own_web: Web) -> None:
    queue(own_web, "q", *range(20))
    taken = take(own_web, "q")
    with redis.Redis(port=own.resp_port) as client:
        assert client.info()["journal_position"] == taken["position"]
    own_web.write("q", "later")
    assert int(str(take(own_web, "q")["position"])) > int(str(taken["position"]))


def test_under_load_a_snapshot_is_the_journal_folded_up_to_its_position(small_chunks: None, tmp_path: Path) -> None:
    data = tmp_path / "data"
    told: dict[int, list[Row]] = {}
    with Broker(str(data)) as broker, Web(broker.http_url) as web, ThreadPoolExecutor(3) as pool:
        queue(web, "q", *range(500))
        ending = Event()
        workers = [pool.submit(_work, broker, f"w{number}", ending) for number in range(3)]
        try:
            for _ in range(4):
                taken = take(web, "q", columns=["offset", "state", "attempts", "nacks", "lease", "holder", "value"])
                told[int(str(taken["position"]))] = fetch(web, taken)
                delete(web, taken)
        finally:
            ending.set()
        assert sum(worker.result() for worker in workers) > 0
    journal = FileJournal(data / "journal", segment_bytes=Settings().segment_size)
    machine = Machine(Random(0))
    for position, batch in journal.read(0):
        for event in decode_batch(batch):
            machine.fold(event)
        if position in told:
            assert sorted(told[position], key=str) == sorted(_jobs(machine), key=str)
            del told[position]
    journal.close()
    assert told == {}


def _work(broker: Broker, node: str, ending: Event) -> int:
    """Takes jobs, gives every third back, and adds as many as it finishes."""
    done = 0
    with Web(broker.http_url) as web:
        while not ending.is_set():
            seqs = [job["$seq"] for job in web.claim("q", node, max=9)]
            web.ask("POST", "/v0/topics/q/nack", {"node": node, "seqs": seqs[::3]})
            acked = [seq for place, seq in enumerate(seqs) if place % 3]
            web.ask("POST", "/v0/topics/q/ack", {"node": node, "seqs": acked})
            web.write("q", *acked)
            done += len(acked)
    return done


def _jobs(machine: Machine) -> list[Row]:
    (partition,) = machine.names[b"q"].partitions
    return [
        {
            "offset": job.seq,
            "state": JobState(job.state).name.lower(),
            "attempts": job.attempts,
            "nacks": job.nacks,
            "lease": f"{job.token:x}" if job.token else None,
            "holder": partition.holders[job.seq].decode() if job.seq in partition.holders else None,
            "value": machine.payload(partition, job),
        }
        for job in partition.jobs.values()
    ]


def test_a_directory_that_cannot_be_written_is_told(own: Broker, own_web: Web) -> None:
    queue(own_web, "q", "a")
    (Path(own.data) / "snapshots").write_text("in the way")
    code, message = refusal(own_web, "POST", "/v0/topics/q/snapshots", 500, {})
    assert (code, "snapshots" in message) == ("snapshot_failed", True)
    (Path(own.data) / "snapshots").unlink()
    take(own_web, "q")


# -- when the queue goes, or its payloads


@pytest.mark.parametrize("end", ["DELETE", "PURGE"])
def test_a_queue_that_goes_meanwhile_is_still_told_whole(held_back: Event, own: Broker, own_web: Web, end: str) -> None:
    queue(own_web, "q", *range(95))
    taken = take(own_web, "q", columns=["offset", "value"])
    with redis.Redis(port=own.resp_port) as client:
        client.execute_command("TOPIC", end, "q")
        checkpoint(client)
    held_back.set()
    assert [row["value"] for row in fetch(own_web, taken)] == [b"%d" % n for n in range(95)]


def test_cold_payloads_that_leave_the_store_meanwhile_are_still_told(held_back: Event) -> None:
    with Broker(hot_payloads="0") as broker, Web(broker.http_url) as web, redis.Redis(port=broker.resp_port) as client:
        queue(web, "q", *range(95))
        checkpoint(client)
        assert client.info()["hot_payload_bytes"] == 0
        taken = take(web, "q", columns=["offset", "value"])
        web.ask("POST", "/v0/topics/q/claim", {"node": "w", "max": 95})
        web.ask("POST", "/v0/topics/q/ack", {"node": "w", "seqs": list(range(1, 96))})
        checkpoint(client)
        held_back.set()
        rows = fetch(web, taken)
        assert {row["offset"]: row["value"] for row in rows} == {n + 1: b"%d" % n for n in range(95)}
        assert len(rows) == 95


def test_dead_letters_that_come_back_meanwhile_are_not_told(held_back: Event, own: Broker, own_web: Web) -> None:
    own_web.put("grave", type="queue")
    queue(own_web, "q", *range(95), max_deliveries=1, dead_letter="grave")
    own_web.ask("POST", "/v0/topics/q/claim", {"node": "w", "max": 95})
    own_web.ask("POST", "/v0/topics/q/nack", {"node": "w", "seqs": list(range(80, 96))})
    assert own_web.claim("q", "w", max=16) == []  # none may be delivered again: they are dead letters now
    assert own_web.state("grave")["count"] == 16
    taken = take(own_web, "q", columns=["offset"])
    with redis.Redis(port=own.resp_port) as client:
        assert client.execute_command("DLQ", "REPLAY", "grave") == 16
    held_back.set()
    assert [row["offset"] for row in fetch(own_web, taken)] == list(range(1, 80))


# -- how they end


def test_a_snapshot_is_gone_once_it_was_deleted(one: Web, topic: str) -> None:
    queue(one, topic, "a")
    taken = take(one, topic)
    delete(one, taken)
    path = f"/v0/snapshots/{taken['snapshot']}"
    assert refusal(one, "GET", f"{path}/0", 404)[0] == "snapshot_gone"
    assert refusal(one, "DELETE", path, 404)[0] == "snapshot_gone"


def test_a_queue_that_does_not_change_has_one_snapshot_for_all(one: Web, topic: str) -> None:
    queue(one, topic, "a", "b")
    first, again = gathered(one, topic), take(one, topic)
    assert again["snapshot"] == first["snapshot"]
    assert take(one, topic, columns=["offset"])["snapshot"] != first["snapshot"]
    assert take(one, topic, states=["leased"])["snapshot"] != first["snapshot"]
    delete(one, first)
    assert len(fetch(one, again)) == 2, "it stays for who was given it as well"
    one.claim(topic, "w")
    changed = gathered(one, topic)
    assert changed["snapshot"] != first["snapshot"]
    assert sorted(str(row["state"]) for row in fetch(one, changed)) == ["leased", "ready"]
    delete(one, again)
    assert refusal(one, "GET", f"/v0/snapshots/{first['snapshot']}/0", 404)[0] == "snapshot_gone"


def test_a_chunk_is_a_file_for_who_can_open_it(small_chunks: None, one: Web, topic: str) -> None:
    queue(one, topic, *(str(number) for number in range(10)))
    taken = take(one, topic)
    chunks = taken["chunks"]
    assert isinstance(chunks, int)
    paths = [
        Path(str(one.ask("GET", f"/v0/snapshots/{taken['snapshot']}/{number}/file")["path"]))
        for number in range(chunks)
    ]
    assert [row for path in paths for row in whole(path.read_bytes())] == fetch(one, taken)
    assert refusal(one, "GET", f"/v0/snapshots/{taken['snapshot']}/{chunks}/file", 404)[0] == "not_found"
    assert refusal(one, "GET", f"/v0/snapshots/{taken['snapshot']}/x/file", 400)[0] == "invalid_request"
    delete(one, taken)
    assert refusal(one, "GET", f"/v0/snapshots/{taken['snapshot']}/0/file", 404)[0] == "snapshot_gone"


def test_a_snapshot_is_gone_after_a_restart_and_so_are_its_files(own: Broker, own_web: Web) -> None:
    queue(own_web, "q", "a")
    taken = take(own_web, "q")
    left = Path(own.data) / "snapshots" / "left by a crash"
    left.mkdir()
    own.restart()
    assert not left.exists()
    with Web(own.http_url) as again:
        assert refusal(again, "GET", f"/v0/snapshots/{taken['snapshot']}/0", 404)[0] == "snapshot_gone"


def test_a_snapshot_that_nobody_uses_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "EXPIRES_S", 0.05)
    monkeypatch.setattr(snapshots, "_LOOK_S", 0.01)
    with Broker() as broker, Web(broker.http_url) as web:
        queue(web, "q", "a")
        taken = take(web, "q")
        eventually(lambda: web.client.delete(f"/v0/snapshots/{taken['snapshot']}").status_code == 404)
        assert not any((Path(broker.data) / "snapshots").iterdir())


def test_deleting_while_it_is_gathered_ends_whoever_waits(held_back: Event, own: Broker, own_web: Web) -> None:
    queue(own_web, "q", *range(95))
    taken = take(own_web, "q")
    path = f"/v0/snapshots/{taken['snapshot']}"
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(httpx.get, f"{own.http_url}{path}/9", timeout=30)
        deleting = pool.submit(httpx.delete, f"{own.http_url}{path}", timeout=30)
        assert waiting.result().json()["error"]["code"] == "snapshot_gone"  # while a chunk is still being written
        held_back.set()
        assert deleting.result().status_code == 200
    assert not (Path(own.data) / "snapshots" / str(taken["snapshot"])).exists()


def test_stopping_while_it_is_gathered_is_orderly(held_back: Event, own: Broker, own_web: Web) -> None:
    queue(own_web, "q", *range(95))
    take(own_web, "q")
    held_back.set()
    own.restart()
    with Web(own.http_url) as again:
        assert again.ask("GET", "/v0/topics/q")["count"] == 95


# -- bounds


def gathered(web: Web, topic: str, **wanted: int) -> Row:
    """A snapshot that is made to its end."""
    taken = take(web, topic, **wanted)
    fetch(web, taken)
    return taken


def test_a_table_that_is_loaded_again_and_again_is_never_refused(
    monkeypatch: pytest.MonkeyPatch, own: Broker, own_web: Web
) -> None:
    monkeypatch.setattr(snapshots, "SNAPSHOTS_MAX", 3)
    monkeypatch.setattr(snapshots, "SPARED_S", 0.0)
    queue(own_web, "q", "a")
    first, second, third = (gathered(own_web, "q", **another()) for _ in range(3))
    fetch(own_web, first)  # so the second is the one that was not used for longest
    gathered(own_web, "q", **another())
    assert refusal(own_web, "GET", f"/v0/snapshots/{second['snapshot']}/0", 404)[0] == "snapshot_gone"
    for still in (first, third):
        assert fetch(own_web, still)
    for _ in range(10):
        gathered(own_web, "q", **another())
    assert len(list((Path(own.data) / "snapshots").iterdir())) <= 4  # one may be on its way out


def test_snapshots_that_were_used_just_now_do_not_make_room(monkeypatch: pytest.MonkeyPatch, own_web: Web) -> None:
    monkeypatch.setattr(snapshots, "SNAPSHOTS_MAX", 3)
    queue(own_web, "q", "a")
    kept = [gathered(own_web, "q", **another()) for _ in range(3)]
    code, message = refusal(own_web, "POST", "/v0/topics/q/snapshots", 429, another())
    assert (code, "delete one" in message) == ("throttled", True)
    for each in kept:
        assert fetch(own_web, each)
    delete(own_web, kept[0])
    take(own_web, "q", **another())


def test_only_so_many_snapshots_are_gathered_at_a_time(held_back: Event, own_web: Web) -> None:
    queue(own_web, "q", "a")
    begun = [take(own_web, "q", **another()) for _ in range(snapshots.GATHERING_MAX)]
    code, message = refusal(own_web, "POST", "/v0/topics/q/snapshots", 429, another())
    assert (code, "gathered" in message) == ("throttled", True)
    held_back.set()
    for each in begun:
        assert len(fetch(own_web, each)) == 1
    assert len(fetch(own_web, take(own_web, "q", **another()))) == 1


def test_snapshots_that_nobody_uses_make_room_on_the_disk(
    monkeypatch: pytest.MonkeyPatch, own: Broker, own_web: Web
) -> None:
    queue(own_web, "q", "x" * 10_000)
    first = gathered(own_web, "q", **another())
    directory = Path(own.data) / "snapshots"
    room = _bytes_in(directory) * 3 // 2

    def usage(_: Path) -> _Usage:
        return _Usage(FREE_BYTES_MIN + room - _bytes_in(directory))

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert refusal(own_web, "POST", "/v0/topics/q/snapshots", 507, another())[0] == "no_room"  # it was used just now
    assert fetch(own_web, first)
    monkeypatch.setattr(snapshots, "SPARED_S", 0.0)
    assert len(fetch(own_web, take(own_web, "q", **another()))) == 1
    assert refusal(own_web, "GET", f"/v0/snapshots/{first['snapshot']}/0", 404)[0] == "snapshot_gone"
    queue(own_web, "large", *("x" * 10_000 for _ in range(9)))
    kept = gathered(own_web, "q", **another())
    assert refusal(own_web, "POST", "/v0/topics/large/snapshots", 507, {})[0] == "no_room"
    assert fetch(own_web, kept), "none goes in vain"


class _Usage(NamedTuple):
    free: int


def _bytes_in(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*/*"))


def test_without_room_on_the_disk_none_is_taken(monkeypatch: pytest.MonkeyPatch, own: Broker, own_web: Web) -> None:
    queue(own_web, "q", "a")
    monkeypatch.setattr(snapshots, "FREE_BYTES_MIN", 1 << 60)
    code, message = refusal(own_web, "POST", "/v0/topics/q/snapshots", 507, {})
    assert (code, "room" in message) == ("no_room", True)
    assert list((Path(own.data) / "snapshots").iterdir()) == []


def test_when_room_runs_out_whoever_waits_is_told(
    held_back: Event, monkeypatch: pytest.MonkeyPatch, own_web: Web
) -> None:
    queue(own_web, "q", *range(95))
    taken = take(own_web, "q")
    monkeypatch.setattr(snapshots, "FREE_BYTES_MIN", 1 << 60)
    held_back.set()
    assert refusal(own_web, "GET", f"/v0/snapshots/{taken['snapshot']}/9", 507)[0] == "no_room"


def test_a_queue_that_changes_faster_than_the_disk_takes_ends_the_snapshot_and_nothing_else(
    held_back: Event, monkeypatch: pytest.MonkeyPatch, own_web: Web
) -> None:
    monkeypatch.setattr(engine_snapshot, "WAITING_BYTES_MAX", 1000)
    queue(own_web, "q", *range(95))
    taken = take(own_web, "q")
    own_web.ask("POST", "/v0/topics/q/claim", {"node": "w", "max": 95})
    held_back.set()
    code, message = refusal(own_web, "GET", f"/v0/snapshots/{taken['snapshot']}/9", 500)
    assert (code, "faster" in message) == ("snapshot_failed", True)
    assert own_web.ask("GET", "/v0/topics/q")["count"] == 95


def test_what_goes_wrong_in_the_thread_is_told_and_the_node_goes_on(
    monkeypatch: pytest.MonkeyPatch, own_web: Web
) -> None:
    def fail(*_: object) -> Path:
        raise OSError(5, "a bad disk")

    monkeypatch.setattr(snapshots, "_write_chunk", fail)
    queue(own_web, "q", "a")
    taken = take(own_web, "q")
    code, message = refusal(own_web, "GET", f"/v0/snapshots/{taken['snapshot']}/0", 500)
    assert (code, "a bad disk" in message) == ("snapshot_failed", True)
    own_web.write("q", "b")


def test_a_client_that_stops_reading_harms_nobody(held_back: Event, own: Broker, own_web: Web) -> None:
    held_back.set()
    own_web.put("q", type="queue")
    for _ in range(4):
        own_web.write("q", *("x" * 100_000 for _ in range(50)))
    taken = take(own_web, "q")
    with socket.create_connection(("127.0.0.1", own.http_port)) as deaf:
        deaf.sendall(b"GET /v0/snapshots/%b/0 HTTP/1.1\r\nHost: localhost\r\n\r\n" % str(taken["snapshot"]).encode())
        assert len(fetch(own_web, taken)) == 200
    delete(own_web, taken)


# -- bad input


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"columns": ["offset", "colour"]}, "'colour'"),
        ({"columns": []}, "columns"),
        ({"columns": ["offset", "offset"]}, "twice"),
        ({"columns": ["x"] * 65}, "columns"),
        ({"columns": "offset"}, "columns"),
        ({"states": ["asleep"]}, "states"),
        ({"priority_min": 1 << 63}, "priority_min"),
        ({"priority_max": "high"}, "priority_max"),
        ({"since_ms": -1}, "since_ms"),
        ({"until_ms": 1.5}, "until_ms"),
        ({"tag_prefix": "x" * 257}, "tag_prefix"),
        ([], "object"),
    ],
)
def test_bad_wishes_are_refused_by_name(one: Web, topic: str, body: object, word: str) -> None:
    queue(one, topic, "a")
    code, message = refusal(one, "POST", f"/v0/topics/{topic}/snapshots", 400, body)
    assert (code, word in message) == ("invalid_request", True), message


def test_what_is_no_queue_has_no_snapshots(one: Web, topic: str) -> None:
    assert refusal(one, "POST", f"/v0/topics/{topic}/snapshots", 404, {})[0] == "topic_not_found"
    one.put(topic, type="log")
    assert refusal(one, "POST", f"/v0/topics/{topic}/snapshots", 409, {})[0] == "wrong_type"


def test_a_chunk_must_be_there(one: Web, topic: str) -> None:
    queue(one, topic, "a")
    taken = take(one, topic)
    path = f"/v0/snapshots/{taken['snapshot']}"
    assert refusal(one, "GET", f"{path}/1", 404) == ("not_found", "the snapshot has no chunk 1")
    for bad in ("x", "-1", "9" * 30, "%F0%9F"):
        assert refusal(one, "GET", f"{path}/{bad}", 400)[0] == "invalid_request"
    response = one.client.get(f"{path}/0", headers={"accept": "text/html"})
    assert response.status_code == 406
    delete(one, taken)


def test_keys_need_the_scope_and_must_reach_the_queue(guarded: httpx.Client) -> None:
    def ask(method: str, path: str, key: str) -> httpx.Response:
        return guarded.request(method, path, headers={"authorization": f"Bearer {key}"})

    guarded.put("/v0/topics/team-a.q", json={"type": "queue"}, headers={"authorization": "Bearer k-all"})
    guarded.put("/v0/topics/other.q", json={"type": "queue"}, headers={"authorization": "Bearer k-all"})
    assert ask("POST", "/v0/topics/team-a.q/snapshots", "k-write").status_code == 403
    assert ask("POST", "/v0/topics/other.q/snapshots", "k-team").status_code == 403
    other = ask("POST", "/v0/topics/other.q/snapshots", "k-read").json()["snapshot"]
    assert ask("GET", f"/v0/snapshots/{other}/0", "k-team").status_code == 404  # as if it were not there
    assert ask("DELETE", f"/v0/snapshots/{other}", "k-team").status_code == 404
    assert ask("DELETE", f"/v0/snapshots/{other}", "k-read").status_code == 200
    mine = ask("POST", "/v0/topics/team-a.q/snapshots", "k-team").json()["snapshot"]
    assert ask("DELETE", f"/v0/snapshots/{mine}", "k-team").status_code == 200
