"""TOPIC and DLQ: a topic's whole life without leaving the Redis protocol."""

from __future__ import annotations

from esker.engine.config import Backoff, TopicConfig
from esker.fronts.resp.commands.topics import KEYS
from tests.fronts.resp.wire import Failure, Simple, Wire, job_id, pairs


def test_every_field_of_a_config_has_a_key() -> None:
    fields = {*TopicConfig.__struct_fields__} - {"backoff"}
    assert set(KEYS) == fields | {f"backoff.{name}" for name in Backoff.__struct_fields__}


def test_a_topic_is_made_shown_changed_and_removed(wire: Wire, queue: bytes) -> None:
    assert wire("TOPIC", "CREATE", queue, "mode", "max", "lease_ms", 5000, "backoff.base_ms", 10) == Simple("OK")
    assert str(wire("TOPIC", "CREATE", queue)).startswith("TOPICEXISTS ")
    config = pairs(wire("TOPIC", "CONFIG", queue))
    assert (config["mode"], config["lease_ms"], config["backoff.base_ms"]) == (b"max", b"5000", b"10")
    assert (config["dead_letter"], config["leases_durable"]) == (b"", b"no")
    assert wire("TOPIC", "CONFIG", queue, "leases_durable", "yes", "backoff.factor", "1.5") == Simple("OK")
    config = pairs(wire("TOPIC", "CONFIG", queue))
    assert (config["mode"], config["leases_durable"], config["backoff.factor"]) == (b"max", b"yes", b"1.5")
    wire("ADDJOB", queue, "low", 0, "PRIORITY", 1)
    wire("ADDJOB", queue, "high", 0, "PRIORITY", 2)
    got = wire("GETJOB", "FROM", queue)
    assert isinstance(got, list)
    assert [job[2] for job in got if isinstance(job, list)] == [b"high"]
    info = pairs(wire("TOPIC", "INFO", queue))
    assert (info["ready"], info["leased"], info["jobs_in"], info["pause"]) == (1, 1, 2, b"none")
    assert wire("TOPIC", "PURGE", queue) == 2
    assert wire("TOPIC", "DELETE", queue) == Simple("OK")
    assert str(wire("TOPIC", "INFO", queue)).startswith("NOTOPIC ")


def test_an_error_names_the_key(wire: Wire, queue: bytes) -> None:
    for pair in (("lease_ms", "soon"), ("mode", "random"), ("leases_durable", "perhaps"), ("backoff.jitter", "2")):
        reply = wire("TOPIC", "CREATE", queue, *pair)
        assert isinstance(reply, Failure)
        assert pair[0] in reply
    assert str(wire("TOPIC", "CREATE", queue, "colour", "red")).startswith("ERR unknown config key 'colour'")
    assert wire("TOPIC", "CREATE", queue, "mode") == Failure("ERR config key 'mode' has no value")
    assert str(wire("TOPIC", "WHAT")).startswith("ERR unknown TOPIC subcommand 'WHAT'")
    assert wire("TOPIC", "DELETE") == Failure("ERR wrong number of arguments for 'topic|delete' command")


def test_topics_are_listed_page_by_page(wire: Wire, queue: bytes) -> None:
    names = [queue + b"-%d" % n for n in range(5)]
    for name in names:
        wire("TOPIC", "CREATE", name)
    found: list[object] = []
    cursor: bytes | int = 0
    while True:
        page = wire("TOPIC", "LIST", cursor, "COUNT", 2)
        assert isinstance(page, list)
        assert isinstance(page[0], bytes)
        assert isinstance(page[1], list)
        found += page[1]
        cursor = page[0]
        if cursor == b"0":
            break
    assert set(names) <= {name for name in found if isinstance(name, bytes)}


def test_a_job_that_fails_too_often_is_buried_and_can_be_replayed(wire: Wire, queue: bytes) -> None:
    grave = queue + b"-dead"
    assert wire("TOPIC", "CREATE", queue, "dead_letter", grave, "max_deliveries", 2) == Simple("OK")
    added = job_id(wire("ADDJOB", queue, "poison", 0))
    for _ in range(2):
        wire("GETJOB", "NOHANG", "FROM", queue)
        wire("NACK", added)
    wire("GETJOB", "NOHANG", "FROM", queue)
    letters = wire("DLQ", "LIST", grave)
    assert isinstance(letters, list)
    letter = letters[0]
    assert isinstance(letter, list)
    assert letter[1:] == [b"poison", queue, 2]
    assert wire("DLQ", "LIST", queue) == letters  # the topic that has one stands for it
    assert isinstance(letter[0], bytes)
    assert wire("DLQ", "REPLAY", queue, letter[0]) == 1
    assert wire("DLQ", "REPLAY", grave, "COUNT", 10) == 0
    got = wire("GETJOB", "FROM", queue)
    assert isinstance(got, list)
    assert [job[2] for job in got if isinstance(job, list)] == [b"poison"]
    assert str(wire("DLQ", "LIST", queue + b"-none")).startswith("NOTOPIC ")
    assert wire("DLQ", "LIST", queue, "COUNT", 0) == Failure("ERR COUNT must be 1 to 10000")


def test_the_config_of_a_queue_is_for_jobs_that_name_no_times(wire: Wire, queue: bytes) -> None:
    wire("TOPIC", "CREATE", queue, "lease_ms", 7000)
    no_times: list[list[str | int]] = [[], ["PRIORITY", 3], ["DELAY", 0]]
    for options in no_times:
        shown = pairs(wire("SHOW", job_id(wire("ADDJOB", queue, "body", 0, *options))))
        assert (shown["ttl"], shown["retry"]) == (0, 7), "it never expires"
    assert isinstance(wire("ADDJOB", queue, "far", 0, "DELAY", 2 * 86_400), str)
    wire("TOPIC", "CONFIG", queue, "ttl_ms", 60_000)
    shown = pairs(wire("SHOW", job_id(wire("ADDJOB", queue, "body", 0))))
    assert (shown["ttl"], shown["retry"]) == (60, 7)
    assert str(wire("ADDJOB", queue, "late", 0, "DELAY", 60)).startswith("ERR The specified DELAY")
    shown = pairs(wire("SHOW", job_id(wire("ADDJOB", queue, "body", 0, "TTL", 50, "RETRY", 2))))
    assert (shown["ttl"], shown["retry"]) == (50, 2)
    shown = pairs(wire("SHOW", job_id(wire("ADDJOB", queue, "body", 0, "TTL", 50))))
    assert (shown["ttl"], shown["retry"]) == (50, 7)


def test_a_queue_without_a_config_has_the_times_of_disque(wire: Wire, queue: bytes) -> None:
    shown = pairs(wire("SHOW", job_id(wire("ADDJOB", queue, "body", 0))))
    assert (shown["ttl"], shown["retry"]) == (86_400, 300)
    shown = pairs(wire("SHOW", job_id(wire("ADDJOB", queue, "body", 0, "TTL", 100))))
    assert (shown["ttl"], shown["retry"]) == (100, 10)
