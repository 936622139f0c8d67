"""Queues through the Redis protocol: statistics, peeking, pausing, scanning."""

from __future__ import annotations

from tests.fronts.resp.wire import NULL_ARRAY, Failure, Reply, Simple, Wire, job_id, pairs


def scanned(wire: Wire, *arguments: str | int | bytes) -> list[Reply]:
    """All pages of a scan."""
    found: list[Reply] = []
    cursor: bytes | int = 0
    while True:
        page = wire(arguments[0], cursor, *arguments[1:])
        assert isinstance(page, list)
        assert isinstance(page[0], bytes)
        assert isinstance(page[1], list)
        found += page[1]
        cursor = page[0]
        if cursor == b"0":
            return found


def test_qstat_has_the_ten_fields_in_order(wire: Wire, queue: bytes) -> None:
    wire("ADDJOB", queue, "a", 0)
    wire("ADDJOB", queue, "b", 0)
    wire("GETJOB", "FROM", queue)
    assert pairs(wire("QSTAT", queue)) == {
        "name": queue, "len": 1, "age": 0, "idle": 0, "blocked": 0, "import-from": [], "import-rate": 0,
        "jobs-in": 2, "jobs-out": 1, "pause": b"none",
    }  # fmt: skip


def test_qpeek_shows_oldest_or_newest_first_and_takes_nothing(wire: Wire, queue: bytes) -> None:
    ids = [job_id(wire("ADDJOB", queue, body, 0)).encode() for body in "abc"]
    assert wire("QPEEK", queue, 2) == [[queue, ids[0], b"a"], [queue, ids[1], b"b"]]
    assert wire("QPEEK", queue, -2) == [[queue, ids[2], b"c"], [queue, ids[1], b"b"]]
    assert wire("QPEEK", queue, 0) == []
    assert wire("QPEEK", queue, "x") == Failure("ERR value is not an integer or out of range")
    assert wire("QLEN", queue) == 3


def test_pause_replaces_the_state_and_its_words_add_up(wire: Wire, queue: bytes) -> None:
    assert wire("PAUSE", queue, "state") == Simple("none")
    assert wire("PAUSE", queue, "in") == Simple("in")
    assert wire("PAUSE", queue, "OUT") == Simple("out")
    assert wire("PAUSE", queue, "in", "out", "bcast") == Simple("all")
    assert wire("PAUSE", queue, "state") == Simple("all")
    assert wire("PAUSE", queue, "none") == Simple("none")
    assert wire("PAUSE", queue, "sideways") == Failure("ERR syntax error")


def test_a_queue_paused_out_seems_empty_until_it_goes_on(wire: Wire, other: Wire, queue: bytes) -> None:
    added = job_id(wire("ADDJOB", queue, "a", 0)).encode()
    wire("PAUSE", queue, "out")
    assert wire("GETJOB", "NOHANG", "FROM", queue) is NULL_ARRAY
    other.send(b"GETJOB TIMEOUT 10000 FROM " + queue + b"\r\n")
    assert other.silent()
    wire("PAUSE", queue, "none")
    assert other.reply() == [[queue, added, b"a"]]


def test_every_queue_is_scanned_and_filters_apply(wire: Wire, queue: bytes) -> None:
    names = [queue + b"-%d" % n for n in range(7)]
    for length, name in enumerate(names):
        wire("PAUSE", name, "in")
        wire("PAUSE", name, "none")
        for _ in range(length):
            wire("ADDJOB", name, "a", 0)
    for command in ("QSCAN", "SCANQUEUES"):
        assert set(names) <= {name for name in scanned(wire, command, "COUNT", 2) if isinstance(name, bytes)}
    everything = wire("QSCAN", "BUSYLOOP", "MINLEN", 2, "MAXLEN", 3)
    assert isinstance(everything, list)
    assert everything[0] == b"0"
    assert isinstance(everything[1], list)
    assert [name for name in names if name in everything[1]] == names[2:4]
    assert wire("QSCAN", "IMPORTRATE", 1) == [b"0", []]
    recent = wire("SCANQUEUES", 0, "MAXIDLE", 3600, "BUSYLOOP")
    assert isinstance(recent, list)
    assert isinstance(recent[1], list)
    assert names[6] in recent[1]


def test_a_scan_of_queues_leaves_logs_out(wire: Wire, queue: bytes) -> None:
    wire("TOPIC", "CREATE", queue + b".log", "type", "log")
    wire("ADDJOB", queue, "a", 0)
    for command in ("QSCAN", "SCANQUEUES"):
        found = scanned(wire, command)
        assert queue in found
        assert queue + b".log" not in found
        for name in found:
            assert isinstance(name, bytes)
            assert not isinstance(wire("GETJOB", "NOHANG", "FROM", name), Failure)


def test_every_job_is_scanned_as_id_or_whole(wire: Wire, queue: bytes) -> None:
    ids = [job_id(wire("ADDJOB", queue, "a", 0)) for _ in range(25)]
    wire("GETJOB", "COUNT", 5, "FROM", queue)
    for command in ("JSCAN", "SCANJOBS"):
        assert sorted(map(str, scanned(wire, command, "QUEUE", queue, "COUNT", 4))) == sorted(ids)
    assert len(scanned(wire, "JSCAN", "QUEUE", queue, "STATE", "active")) == 5
    assert len(scanned(wire, "JSCAN", "QUEUE", queue, "STATE", "queued")) == 20
    assert len(scanned(wire, "JSCAN", "QUEUE", queue, "STATE", "queued", "STATE", "active")) == 25
    assert scanned(wire, "JSCAN", "QUEUE", queue, "STATE", "acked") == []
    whole = scanned(wire, "JSCAN", "QUEUE", queue, "REPLY", "all", "BUSYLOOP")
    assert {pairs(job)["id"] for job in whole} == {added.encode() for added in ids}
    assert all(isinstance(reply, Simple) for reply in scanned(wire, "JSCAN", "QUEUE", queue))


def test_a_bad_scan_says_why(wire: Wire) -> None:
    assert wire("QSCAN", "x") == Failure("ERR invalid cursor")
    assert wire("QSCAN", 0, 1) == Failure("ERR syntax error")
    assert wire("QSCAN", 0, "COUNT", 0) == Failure("ERR COUNT must be a number greater than zero")
    assert wire("JSCAN", 0, "STATE", "asleep") == Failure("ERR Invalid job state name")
    assert wire("JSCAN", 0, "REPLY", "some") == Failure("ERR Invalid REPLY type, use all or id")
