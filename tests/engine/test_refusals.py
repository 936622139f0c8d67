"""A refusal changes nothing, says why with the value, and takes a whole batch with it."""

from __future__ import annotations

import msgspec
import pytest

from esker.engine import limits
from esker.engine.commands import (
    Command,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    Details,
    Enqueue,
    NewJob,
    PauseTopic,
    Purge,
    ReplayDeadLetters,
    Reprioritise,
    Show,
    Stats,
    Working,
)  # fmt: skip
from esker.engine.config import Backoff, Pause, TopicConfig, TopicType
from esker.errors import Code, Refusal
from tests.engine.dump import dump
from tests.engine.rig import Q, Rig, expect

GOOD = NewJob(b"good", details=Details(key=b"k"))
BIG = b"n" * (limits.TOPIC_NAME_BYTES_MAX + 1)


def job(**fields: object) -> NewJob:
    return NewJob(b"work", **fields)  # type: ignore[arg-type]


def details(**fields: object) -> NewJob:
    return NewJob(b"work", details=Details(**fields))  # type: ignore[arg-type]


JOBS = [
    (NewJob(b"x" * 101), Code.PAYLOAD_TOO_LARGE, "101"),
    (job(priority=limits.PRIORITY_MAX + 1), Code.BAD_REQUEST, str(limits.PRIORITY_MAX + 1)),
    (job(priority=limits.PRIORITY_MIN - 1), Code.BAD_REQUEST, str(limits.PRIORITY_MIN - 1)),
    (job(retry_ms=-1), Code.BAD_REQUEST, "-1"),
    (job(retry_ms=limits.DELAY_MS_MAX + 1), Code.BAD_REQUEST, str(limits.DELAY_MS_MAX + 1)),
    (job(ttl_ms=-1), Code.BAD_REQUEST, "-1"),
    (job(ttl_ms=limits.TTL_MS_MAX + 1), Code.BAD_REQUEST, str(limits.TTL_MS_MAX + 1)),
    (details(delay_ms=-1), Code.BAD_REQUEST, "-1"),
    (details(delay_ms=limits.DELAY_MS_MAX + 1), Code.BAD_REQUEST, str(limits.DELAY_MS_MAX + 1)),
    (details(tag=b"t" * 257), Code.BAD_REQUEST, "257"),
    (details(node=b"n" * 129), Code.BAD_REQUEST, "129"),
    (details(meta=msgspec.json.encode({str(n): "" for n in range(65)})), Code.BAD_REQUEST, "65"),
    (details(meta=b'{"k":"%b"}' % (b"v" * 16_377)), Code.BAD_REQUEST, "16385"),
    (details(meta=b"[]"), Code.BAD_REQUEST, "JSON object"),
    (details(meta=b"{"), Code.BAD_REQUEST, "JSON object"),
    (details(key=b"k" * 1025), Code.BAD_REQUEST, "1025"),
    (details(producer=b"p" * 1025), Code.BAD_REQUEST, "1025"),
    (details(producer=b"p", epoch=-1), Code.BAD_REQUEST, "-1"),
    (details(producer=b"p", sequence=1 << 64), Code.BAD_REQUEST, str(1 << 64)),
    (details(max_deliveries=-2), Code.BAD_REQUEST, "-2"),
]


@pytest.mark.parametrize(("bad", "code", "value"), JOBS)
@pytest.mark.parametrize("partitions", [1, 3])
def test_one_bad_job_refuses_the_whole_batch_and_names_its_value(
    bad: NewJob, code: Code, value: str, partitions: int
) -> None:
    rig = Rig(TopicConfig(max_payload_bytes=100, partitions=partitions))
    refuse(rig, Enqueue(Q, [GOOD, bad, GOOD]), code, value)
    refuse(rig, Enqueue(b"new", [GOOD, bad], config=TopicConfig(max_payload_bytes=100)), code, value)


def refuse(rig: Rig, command: Command, code: Code, value: str) -> None:
    before = dump(rig.machine)
    refusal = expect(Refusal, rig.do(command))
    assert refusal.code == code
    assert value in refusal.message
    assert "b'" not in refusal.message, "names are shown as text"
    assert dump(rig.machine) == before
    assert (rig.last, rig.synced) == ([], False)


@pytest.mark.parametrize(
    ("command", "code", "value"),
    [
        (Enqueue(b"nowhere", [GOOD], create=False), Code.TOPIC_NOT_FOUND, "nowhere"),
        (Enqueue(b"", [GOOD]), Code.BAD_REQUEST, "0"),
        (Enqueue(BIG, [GOOD]), Code.BAD_REQUEST, str(len(BIG))),
        (Enqueue(b"log", [GOOD]), Code.NOT_A_QUEUE, "log"),
        (Enqueue(b"new", [GOOD], config=TopicConfig(type=TopicType.LOG)), Code.NOT_A_QUEUE, "log"),
        (Enqueue(b"new", [GOOD], config=TopicConfig(type=TopicType.KV)), Code.BAD_REQUEST, "kv"),
        (Enqueue(b"paused", [GOOD]), Code.PAUSED, "paused"),
        (Enqueue(Q, [GOOD], max_len=1), Code.QUEUE_FULL, "1"),
        (Enqueue(Q, [GOOD] * (limits.ENQUEUE_JOBS_MAX + 1)), Code.BAD_REQUEST, "10001"),
        (CreateTopic(Q, TopicConfig()), Code.TOPIC_EXISTS, "q"),
        (CreateTopic(b"", TopicConfig()), Code.BAD_REQUEST, "0"),
        (PauseTopic(BIG, Pause.IN), Code.BAD_REQUEST, str(len(BIG))),
        (ConfigureTopic(b"nowhere", TopicConfig()), Code.TOPIC_NOT_FOUND, "nowhere"),
        (ConfigureTopic(Q, TopicConfig(partitions=2)), Code.BAD_REQUEST, "partitions"),
        (ConfigureTopic(Q, TopicConfig(type=TopicType.LOG)), Code.BAD_REQUEST, "type"),
        (ConfigureTopic(Q, TopicConfig(dead_letter=Q)), Code.BAD_REQUEST, "dead_letter"),
        (DeleteTopic(b"nowhere"), Code.TOPIC_NOT_FOUND, "nowhere"),
        (Purge(b"nowhere"), Code.TOPIC_NOT_FOUND, "nowhere"),
        (Stats(b"nowhere"), Code.TOPIC_NOT_FOUND, "nowhere"),
        (ReplayDeadLetters(b"nowhere"), Code.TOPIC_NOT_FOUND, "nowhere"),
        (Reprioritise([1], 1 << 63), Code.BAD_REQUEST, str(1 << 63)),
        (Show(1), Code.JOB_NOT_FOUND, "job"),
        (Working(1), Code.JOB_NOT_FOUND, "job"),
    ],
)
def test_a_refused_command_changes_nothing(command: Command, code: Code, value: str) -> None:
    rig = Rig(TopicConfig())
    rig.add()
    rig.do(CreateTopic(b"log", TopicConfig(type=TopicType.LOG)))
    rig.do(CreateTopic(b"paused", TopicConfig()))
    rig.do(PauseTopic(b"paused", Pause.ALL))
    refuse(rig, command, code, value)


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        (TopicConfig(partitions=0), "partitions", "0"),
        (TopicConfig(partitions=1025), "partitions", "1025"),
        (TopicConfig(ttl_ms=-1), "ttl_ms", "-1"),
        (TopicConfig(max_payload_bytes=0), "max_payload_bytes", "0"),
        (TopicConfig(max_in_flight=-3), "max_in_flight", "-3"),
        (TopicConfig(lease_ms=0), "lease_ms", "0"),
        (TopicConfig(max_lease_ms=limits.LEASE_MS_MAX + 1), "max_lease_ms", str(limits.LEASE_MS_MAX + 1)),
        (TopicConfig(max_deliveries=-1), "max_deliveries", "-1"),
        (TopicConfig(idempotency_window_ms=-1), "idempotency_window_ms", "-1"),
        (TopicConfig(backoff=Backoff(base_ms=-1)), "base_ms", "-1"),
        (TopicConfig(backoff=Backoff(base_ms=5, cap_ms=4)), "base_ms", "5"),
        (TopicConfig(backoff=Backoff(factor=0.5)), "factor", "0.5"),
        (TopicConfig(backoff=Backoff(factor=float("nan"))), "factor", "nan"),
        (TopicConfig(backoff=Backoff(jitter=1.5)), "jitter", "1.5"),
        (TopicConfig(dead_letter=b""), "dead_letter", "is ''"),
        (TopicConfig(dead_letter=BIG), "dead_letter", str(len(BIG))),
    ],
)
def test_an_unsound_config_is_refused_by_field_and_value(config: TopicConfig, field: str, value: str) -> None:
    rig = Rig()
    refuse(rig, CreateTopic(Q, config), Code.BAD_REQUEST, value)
    assert field in rig.refused(CreateTopic(Q, config)).message


def test_no_topic_is_made_beyond_the_numbers_an_id_can_hold() -> None:
    rig = Rig()
    rig.machine.next_number = limits.TOPIC_NUMBERS_MAX
    rig.do(CreateTopic(b"last", TopicConfig()))
    refuse(rig, CreateTopic(b"one more", TopicConfig()), Code.LIMIT_REACHED, str(limits.TOPIC_NUMBERS_MAX))
    refuse(rig, Enqueue(b"one more", [GOOD]), Code.LIMIT_REACHED, str(limits.TOPIC_NUMBERS_MAX))


def test_an_empty_batch_adds_nothing() -> None:
    for partitions in (1, 2):
        rig = Rig(TopicConfig(partitions=partitions))
        before = dump(rig.machine)
        assert list(rig.add_many()) == []
        assert dump(rig.machine) == before


def test_a_full_disk_refuses_new_jobs_and_lets_old_ones_finish() -> None:
    rig = Rig(TopicConfig())
    rig.add()
    rig.machine.refuse_new = Refusal(Code.DISK_FULL, "the disk is full")
    refuse(rig, Enqueue(Q, [GOOD]), Code.DISK_FULL, "disk")
    assert rig.ack(rig.lease_one()).count == 1
