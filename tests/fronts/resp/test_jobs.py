"""Jobs through the Redis protocol: reply types, error prefixes and the order of checks are Disque's."""

from __future__ import annotations

import time

import pytest

from tests.fronts.resp.wire import NULL_ARRAY, Failure, Simple, Wire, encoded, job_id, pairs

FOREIGN = "D-0f0c644f-abcdefghijklmnopqrstuvwx-05a1"
UNKNOWN = "DI0f0c644f" + "0" * 31 + "1" + "05a1SQ"


def prefix(reply: object) -> str:
    assert isinstance(reply, Failure), reply
    return reply.split()[0]


def test_a_job_is_added_got_and_acknowledged_once(wire: Wire, queue: bytes) -> None:
    added = job_id(wire("ADDJOB", queue, b"\x00\r\n body", 0))
    assert wire("QLEN", queue) == 1
    assert wire("GETJOB", "FROM", queue) == [[queue, added.encode(), b"\x00\r\n body"]]
    assert wire("QLEN", queue) == 0
    assert wire("ACKJOB", added) == 1
    assert wire("ACKJOB", added) == 0
    assert wire("SHOW", added) is None


def test_the_id_carries_the_node_and_the_ttl(wire: Wire, queue: bytes) -> None:
    node = wire("CLUSTER", "MYID")
    assert isinstance(node, bytes)
    plain = job_id(wire("ADDJOB", queue, "a", 0))
    assert (plain[2:10].encode(), plain[42:46]) == (node[:8], "05a1")
    assert job_id(wire("ADDJOB", queue, "a", 0, "RETRY", 0))[42:46] == "05a0"
    assert job_id(wire("ADDJOB", queue, "a", 0, "TTL", 120))[42:46] == "0003"


def test_getjob_takes_one_of_each_queue_in_turn_up_to_count(wire: Wire, queue: bytes) -> None:
    one, two = queue + b"-1", queue + b"-2"
    for body in ("a", "b", "c"):
        wire("ADDJOB", one, body, 0)
    wire("ADDJOB", two, "x", 0)
    got = wire("GETJOB", "COUNT", 10, "FROM", one, two)
    assert isinstance(got, list)
    assert [job[2] for job in got if isinstance(job, list)] == [b"a", b"x", b"b", b"c"]


def test_counters_and_priority_come_behind_the_body(wire: Wire, queue: bytes) -> None:
    added = job_id(wire("ADDJOB", queue, "a", 0, "PRIORITY", -5)).encode()
    assert wire("GETJOB", "FROM", queue) == [[queue, added, b"a"]]
    assert wire("NACK", added) == 1
    assert wire("GETJOB", "WITHCOUNTERS", "WITHPRIORITY", "FROM", queue) == [
        [queue, added, b"a", b"nacks", 1, b"additional-deliveries", 0, b"priority", -5]
    ]
    assert wire("ENQUEUE", added) == 1
    assert wire("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", queue) == [
        [queue, added, b"a", b"nacks", 1, b"additional-deliveries", 1]
    ]


def test_the_best_priority_is_served_first(wire: Wire, queue: bytes) -> None:
    wire("ADDJOB", queue, "late", 0, "PRIORITY", 9)
    middle = job_id(wire("ADDJOB", queue, "middle", 0))
    wire("ADDJOB", queue, "early", 0, "PRIORITY", -9)
    assert wire("JOB", "PRIORITY", -10, middle) == 1
    got = wire("GETJOB", "COUNT", 3, "FROM", queue)
    assert isinstance(got, list)
    assert [job[2] for job in got if isinstance(job, list)] == [b"middle", b"early", b"late"]


def test_nothing_there_is_a_null_array(wire: Wire, queue: bytes) -> None:
    assert wire("GETJOB", "NOHANG", "FROM", queue) is NULL_ARRAY
    assert wire("GETJOB", "TIMEOUT", 20, "FROM", queue) is NULL_ARRAY
    assert wire("QSTAT", queue) is NULL_ARRAY
    assert wire("QPEEK", queue, 3) == []
    assert wire("QLEN", queue) == 0


def test_a_job_without_retry_is_delivered_at_most_once(wire: Wire, queue: bytes) -> None:
    added = job_id(wire("ADDJOB", queue, "a", 0, "RETRY", 0))
    assert wire("GETJOB", "FROM", queue) == [[queue, added.encode(), b"a"]]
    assert wire("NACK", added) == 0
    assert wire("ENQUEUE", added) == 0
    assert wire("ACKJOB", added) == 1


def test_a_job_not_acknowledged_comes_back_after_its_retry_time(wire: Wire, queue: bytes) -> None:
    added = job_id(wire("ADDJOB", queue, "a", 0, "RETRY", 1)).encode()
    assert wire("GETJOB", "FROM", queue) == [[queue, added, b"a"]]
    began = time.monotonic()
    again = wire("GETJOB", "TIMEOUT", 5000, "WITHCOUNTERS", "FROM", queue)
    assert again == [[queue, added, b"a", b"nacks", 0, b"additional-deliveries", 1]]
    assert 0.8 < time.monotonic() - began < 4


def test_a_delayed_job_waits_and_enqueue_ends_its_delay(wire: Wire, queue: bytes) -> None:
    added = job_id(wire("ADDJOB", queue, "a", 0, "DELAY", 60)).encode()
    assert wire("QLEN", queue) == 0
    shown = pairs(wire("SHOW", added))
    assert (shown["state"], shown["delay"]) == (b"active", 60)
    assert wire("ENQUEUE", added) == 1
    assert wire("GETJOB", "WITHCOUNTERS", "FROM", queue) == [
        [queue, added, b"a", b"nacks", 0, b"additional-deliveries", 0]
    ]


def test_show_has_the_fifteen_fields_in_order(wire: Wire, queue: bytes) -> None:
    added = job_id(wire("ADDJOB", queue, "a", 0, "TTL", 100))
    reply = wire("SHOW", added)
    assert isinstance(reply, list)
    assert len(reply) == 30
    shown = pairs(reply)
    node = wire("CLUSTER", "MYID")
    assert list(shown) == [
        "id", "queue", "state", "repl", "ttl", "ctime", "delay", "retry", "nacks", "additional-deliveries",
        "nodes-delivered", "nodes-confirmed", "next-requeue-within", "next-awake-within", "body",
    ]  # fmt: skip
    assert shown["id"] == added.encode()
    assert (shown["queue"], shown["state"], shown["body"]) == (queue, b"queued", b"a")
    assert (shown["repl"], shown["retry"], shown["nodes-delivered"], shown["nodes-confirmed"]) == (1, 10, [node], [])
    assert isinstance(shown["ttl"], int)
    assert 98 <= shown["ttl"] <= 100
    wire("GETJOB", "FROM", queue)
    requeue = pairs(wire("SHOW", added))["next-requeue-within"]
    assert isinstance(requeue, int)
    assert 8000 < requeue <= 10_000


def test_show_says_as_an_integer_when_a_job_comes_back(wire: Wire, queue: bytes) -> None:
    """Clients of Disque read it as one; null is for jobs that do not come back."""

    def within(added: str) -> object:
        return pairs(wire("SHOW", added))["next-requeue-within"]

    queued = job_id(wire("ADDJOB", queue, "a", 0, "RETRY", 30))
    once = job_id(wire("ADDJOB", queue, "b", 0, "RETRY", 0))
    delayed = job_id(wire("ADDJOB", queue, "c", 0, "DELAY", 50))
    assert within(queued) == 30_000
    assert within(once) is None
    wait_ms = within(delayed)
    assert isinstance(wait_ms, int)
    assert 0 < wait_ms <= 50_000
    wire("GETJOB", "COUNT", 2, "FROM", queue)
    left_ms = within(queued)
    assert isinstance(left_ms, int)
    assert 0 < left_ms <= 30_000
    assert within(once) is None
    assert wire("NACK", queued) == 1
    assert within(queued) == 30_000


def test_a_job_can_be_taken_out_of_its_queue_and_put_back(wire: Wire, queue: bytes) -> None:
    added = job_id(wire("ADDJOB", queue, "a", 0))
    assert wire("DEQUEUE", added) == 1
    assert wire("DEQUEUE", added) == 0
    assert wire("QLEN", queue) == 0
    assert wire("QUEUE", added) == 1
    assert wire("QLEN", queue) == 1


def test_deljob_takes_its_older_options(wire: Wire, queue: bytes) -> None:
    ids = [job_id(wire("ADDJOB", queue, "a", 0)) for _ in range(3)]
    assert wire("DELJOB", ids[0]) == 1
    assert wire("DELJOB", "BCAST", "FORCE", ids[1], UNKNOWN) == 1
    assert wire("FASTACK", ids[2], FOREIGN) == 1


def test_working_postpones_the_next_delivery(wire: Wire, queue: bytes) -> None:
    added = job_id(wire("ADDJOB", queue, "a", 0, "RETRY", 30))
    assert wire("WORKING", added) == 30
    assert prefix(wire("WORKING", UNKNOWN)) == "NOJOB"
    assert prefix(wire("WORKING", FOREIGN)) == "NOJOB"
    assert prefix(wire("WORKING", "x")) == "BADID"
    short = job_id(wire("ADDJOB", queue, "a", 0, "TTL", 1))
    time.sleep(0.6)  # the node's own clock has to pass half of the TTL
    assert prefix(wire("WORKING", short)) == "TOOLATE"


def test_a_lease_can_be_extended(wire: Wire, queue: bytes) -> None:
    added = job_id(wire("ADDJOB", queue, "a", 0, "RETRY", 1))
    assert wire("JOB", "EXTEND", 60_000, added) == 0
    wire("GETJOB", "FROM", queue)
    assert wire("JOB", "EXTEND", 60_000, added) == 1
    assert wire("GETJOB", "TIMEOUT", 1300, "FROM", queue) is NULL_ARRAY


@pytest.mark.parametrize("name", ["ACKJOB", "FASTACK", "NACK", "ENQUEUE", "DEQUEUE", "DELJOB"])
def test_a_malformed_id_among_good_ones_changes_nothing(wire: Wire, queue: bytes, name: str) -> None:
    added = job_id(wire("ADDJOB", queue, "a", 0))
    assert prefix(wire(name, added, "nonsense")) == "BADID"
    assert wire("QLEN", queue) == 1
    assert wire(name, UNKNOWN, FOREIGN) == 0
    assert wire(name) == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["REPLICATE", 0], "ERR REPLICATE must be between 1 and 65535"),
        (["REPLICATE", 65536], "ERR REPLICATE must be between 1 and 65535"),
        (["TTL", 0], "ERR TTL must be a number > 0"),
        (["TTL", "01"], "ERR TTL must be a number > 0"),
        (["RETRY", -1], "ERR RETRY time must be a non negative number"),
        (["DELAY", "x"], "ERR DELAY time must be a non negative number"),
        (["MAXLEN", 0], "ERR MAXLEN must be a positive number"),
        (["PRIORITY", 1 << 63], "ERR PRIORITY must be a 64 bit integer"),
        (["NONSENSE"], "ERR syntax error"),
        (["TTL"], "ERR syntax error"),
    ],
)
def test_a_bad_option_of_addjob_is_named(wire: Wire, queue: bytes, options: list[str | int], text: str) -> None:
    assert wire("ADDJOB", queue, "a", 0, *options) == Failure(text)


def test_addjob_checks_in_disques_order(wire: Wire, queue: bytes) -> None:
    everything: list[str | int] = ["DELAY", 5, "TTL", 5, "RETRY", 0, "REPLICATE", 2, "MAXLEN", 1]
    assert wire("ADDJOB", queue, "a", "x", *everything, "BAD") == Failure("ERR syntax error")
    assert wire("ADDJOB", queue, "a", "x", *everything) == Failure("ERR timeout is not an integer or out of range")
    assert wire("ADDJOB", queue, "a", -1, *everything) == Failure("ERR timeout is negative")
    assert "RETRY set to 0" in str(wire("ADDJOB", queue, "a", 0, *everything))
    assert "DELAY is greater than TTL" in str(wire("ADDJOB", queue, "a", 0, "DELAY", 5, "TTL", 5, "REPLICATE", 2))
    assert wire("PAUSE", queue, "in") == Simple("in")
    assert prefix(wire("ADDJOB", queue, "a", 0, "REPLICATE", 2)) == "NOREPL"
    assert prefix(wire("ADDJOB", queue, "a", 0)) == "PAUSED"
    assert wire("PAUSE", queue, "none") == Simple("none")
    wire("ADDJOB", queue, "a", 0)
    wire("PAUSE", queue, "in")
    assert prefix(wire("ADDJOB", queue, "a", 0, "MAXLEN", 1)) == "MAXLEN"
    wire("PAUSE", queue, "none")
    assert isinstance(wire("ADDJOB", queue, "a", 0, "MAXLEN", 2, "ASYNC", "REPLICATE", 1), Simple)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["FROM"], "ERR syntax error"),
        (["COUNT", 0, "FROM", "q"], "ERR COUNT must be a number greater than zero"),
        (["COUNT", 2], "ERR syntax error"),
        (["TIMEOUT", "x", "FROM", "q"], "ERR timeout is not an integer or out of range"),
        (["TIMEOUT", -1, "FROM", "q"], "ERR timeout is negative"),
        (["WHAT", "FROM", "q"], "ERR syntax error"),
    ],
)
def test_a_bad_getjob_says_why(wire: Wire, arguments: list[str | int], text: str) -> None:
    assert wire("GETJOB", *arguments) == Failure(text)


def test_loadjob_is_refused(wire: Wire) -> None:
    assert prefix(wire("LOADJOB", "blob")) == "ERR"


def test_a_pipeline_is_answered_in_order(wire: Wire, queue: bytes) -> None:
    wire.send(b"".join(encoded("ADDJOB", queue, f"job-{n}", 0) for n in range(500)) + encoded("QLEN", queue))
    *ids, length = wire.replies(501)
    assert length == 500
    assert len({job_id(added) for added in ids}) == 500
    wire.send(encoded("GETJOB", "COUNT", 500, "FROM", queue) + encoded("PING"))
    got = wire.reply()
    assert isinstance(got, list)
    assert [job[2] for job in got if isinstance(job, list)] == [b"job-%d" % n for n in range(500)]
    assert wire.reply() == Simple("PONG")


def test_a_pipeline_means_the_same_as_its_commands_one_by_one(wire: Wire, queue: bytes) -> None:
    """Neighbours that the server runs in one step: refusals, repeats and ends are still those of each command."""
    ids = [job_id(wire("ADDJOB", queue, n, 0)) for n in range(4)]
    acks = [ids[0], ids[1], ids[0], "nonsense", UNKNOWN, ids[2], FOREIGN, ids[2], ids[3]]
    wire.send(b"".join(encoded("ACKJOB", named) for named in acks))
    assert [prefix(r) if isinstance(r, Failure) else r for r in wire.replies(9)] == [1, 1, 0, "BADID", 0, 1, 0, 0, 1]

    wire("PAUSE", queue, "in")
    wire.send(
        encoded("ADDJOB", queue, "a", 0) * 3 + encoded("PAUSE", queue, "none") + encoded("ADDJOB", queue, "b", 0) * 2
    )
    replies = wire.replies(6)
    assert [prefix(reply) for reply in replies[:3]] == ["PAUSED"] * 3
    assert [type(reply) for reply in replies[3:]] == [Simple] * 3

    wire.send(encoded("GETJOB", "FROM", queue) * 3 + encoded("PING"))
    first, second = wire.replies(2)
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert len(first) == len(second) == 1
    assert wire.silent()  # the third waits, and the PING behind it
    with_option = encoded("ADDJOB", queue, "c", 0, "PRIORITY", 1)
    wire.send(with_option)  # so does this one, on the same connection
    assert wire.silent()


def test_every_plain_addjob_of_a_pipeline_has_its_own_id_and_body(wire: Wire, queue: bytes) -> None:
    other = queue + b"-other"
    wire.send(b"".join(encoded("ADDJOB", (queue, other)[n % 3 == 0], n, 0) for n in range(60)))
    ids = [job_id(reply) for reply in wire.replies(60)]
    for n, added in enumerate(ids):
        shown = pairs(wire("SHOW", added))
        assert (shown["body"], shown["queue"]) == (b"%d" % n, (queue, other)[n % 3 == 0])
