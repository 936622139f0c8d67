"""What gives way when memory runs out, and what does not."""

from __future__ import annotations

from esker.engine import limits
from esker.engine.commands import (
    Append,
    Command,
    CreateTopic,
    DeleteTopic,
    Details,
    Enqueue,
    EnqueueAlike,
    NewJob,
    NewRecord,
    PauseTopic,
    PutRouter,
    PutTopic,
    Tick,
)  # fmt: skip
from esker.engine.config import Pause, RouterOptions, TopicConfig
from esker.engine.replies import Added
from esker.errors import Code
from tests.engine.audit import audit
from tests.engine.rig import Q, Rig

JOB_BYTES = limits.JOB_MEMORY_BYTES + 50
TOPIC_BYTES = limits.TOPIC_MEMORY_BYTES + len(Q) + limits.QUEUE_PARTITION_MEMORY_BYTES


def filled(jobs: int, spent: int) -> Rig:
    rig = Rig(TopicConfig())
    for _ in range(spent):
        rig.add(b"s" * 50, retry_ms=0)
        rig.lease_one()
    rig.add_many(*[b"x" * 50] * jobs)
    return rig


def test_the_estimate_counts_topics_jobs_and_payloads() -> None:
    assert filled(3, 2).machine.memory_bytes() == TOPIC_BYTES + 5 * JOB_BYTES


def test_the_estimate_counts_keys_and_tags_and_forgets_them_with_their_topic() -> None:
    rig = Rig(TopicConfig(idempotency_window_ms=1000))
    before = rig.machine.memory_bytes()
    rig.add(b"x", details=Details(key=b"key", tag=b"tag"))
    key, tag = limits.DEDUP_KEY_MEMORY_BYTES + 4, limits.TAG_MEMORY_BYTES + limits.TAGGED_MEMORY_BYTES + 3
    assert rig.machine.memory_bytes() == before + limits.JOB_MEMORY_BYTES + 1 + key + tag
    rig.do(DeleteTopic(Q))
    assert rig.machine.memory_bytes() == 0
    audit(rig.machine)


def test_queues_made_by_adding_jobs_count_towards_the_memory_limit() -> None:
    rig = Rig()
    rig.machine.memory_limit = 50 * TOPIC_BYTES
    made = 0
    while made < 60 and isinstance(rig.do(Enqueue(b"queue-%d" % made, [NewJob(b"x")])), Added):
        made += 1
    assert 40 < made < 60
    assert rig.code(Enqueue(b"another", [NewJob(b"x")])) == Code.OUT_OF_MEMORY
    assert rig.code(EnqueueAlike(b"another", [b"x"], 1000, 1000)) == Code.OUT_OF_MEMORY
    assert rig.code(PauseTopic(b"another", Pause.IN)) == Code.OUT_OF_MEMORY
    assert rig.code(CreateTopic(b"another", TopicConfig(partitions=1000))) == Code.OUT_OF_MEMORY
    audit(rig.machine)


def test_the_cap_on_topics_holds_on_every_path_that_makes_one() -> None:
    rig = Rig(TopicConfig(dead_letter=b"dead", max_deliveries=1, lease_ms=1000))
    rig.machine.topics_max = 2
    rig.add(b"x", topic=b"second")
    third: list[Command] = [
        Enqueue(b"third", [NewJob(b"x")]),
        EnqueueAlike(b"third", [b"x"], 1000, 1000),
        Append(b"third", [NewRecord(b"x")]),
        Append(b"third", [NewRecord(b"x")], config=TopicConfig()),
        CreateTopic(b"third", TopicConfig()),
        PutTopic(b"third", TopicConfig()),
        PauseTopic(b"third", Pause.IN),
        PutRouter(b"router", Q, b"third", RouterOptions(), True),
        PutRouter(b"router", b"third", Q, RouterOptions(), True),
    ]
    for command in third:
        refusal = rig.refused(command)
        assert (refusal.code, refusal.detail) == (Code.LIMIT_REACHED, {"limit": "max_topics", "max": 2}), command
    rig.machine.topics_max = 3
    assert rig.code(PutRouter(b"router", b"third", b"fourth", RouterOptions(), True)) == Code.LIMIT_REACHED
    rig.machine.topics_max = 2
    rig.add(b"poison")
    rig.lease_one()
    rig.pass_ms(1001)
    assert rig.lease_one().payload == b"poison", "it is rather delivered once more than lost"
    assert set(rig.machine.names) == {Q, b"second"}


def test_below_95_percent_nothing_leaves() -> None:
    rig = filled(jobs=90, spent=4)
    rig.machine.memory_limit = TOPIC_BYTES + 100 * JOB_BYTES
    rig.add()
    assert rig.stats().spent == 4


def test_from_95_percent_on_what_no_promise_covers_leaves() -> None:
    rig = filled(jobs=91, spent=4)
    rig.machine.memory_limit = TOPIC_BYTES + 100 * JOB_BYTES
    rig.add()
    assert (rig.stats().spent, rig.stats().ready) == (0, 92)
    audit(rig.machine)


def test_at_100_percent_new_jobs_are_refused_and_old_ones_finish() -> None:
    rig = filled(jobs=100, spent=0)
    rig.machine.memory_limit = TOPIC_BYTES + 100 * JOB_BYTES
    refusal = rig.refused(Enqueue(Q, [NewJob(b"more")]))
    assert refusal.code == Code.OUT_OF_MEMORY
    assert refusal.retryable
    assert str(TOPIC_BYTES + 100 * JOB_BYTES) in refusal.message
    rig.ack(rig.lease_one())
    rig.add(b"x" * 50)


def test_a_job_that_is_refused_anyway_drives_nobody_out() -> None:
    rig = filled(jobs=98, spent=4)
    rig.machine.memory_limit = TOPIC_BYTES + 100 * JOB_BYTES
    assert rig.code(Enqueue(Q, [NewJob(b"bad", priority=1 << 63)])) == Code.BAD_REQUEST
    assert rig.stats().spent == 4


def test_idle_queues_leave_sooner_under_pressure() -> None:
    for percent, idle_ms in ((50, 300_000), (80, 10_000), (96, 2_000)):
        rig = filled(jobs=percent, spent=0)
        rig.add(topic=b"lazy")
        rig.machine.memory_limit = (rig.machine.memory_bytes() - JOB_BYTES) * 100 // percent
        rig.ack(rig.lease_one(b"lazy"))
        rig.pass_ms(idle_ms)
        assert b"lazy" in rig.machine.names
        rig.pass_ms(1)
        assert b"lazy" not in rig.machine.names


def test_an_eviction_is_a_bounded_step() -> None:
    rig = filled(jobs=0, spent=2500)
    rig.machine.memory_limit = TOPIC_BYTES + 2500 * JOB_BYTES
    rig.add()
    assert rig.stats().spent == 2500 - limits.TIMERS_PER_TURN
    rig.do(Tick())
    audit(rig.machine)


def test_jobs_share_the_numbers_they_have_in_common() -> None:
    """Each number of its own is 32 bytes, of some 330 that a waiting job has beyond its payload."""
    rig = Rig(TopicConfig())
    for _ in range(2):
        rig.do(EnqueueAlike(Q, [b"x"] * 300, int("300000"), 60_000))
        rig.do(Enqueue(Q, [NewJob(b"x", 5, int("300000"), 60_000) for _ in range(300)]))
    jobs = rig.machine.names[Q].partitions[0].jobs
    assert len(jobs) == 1200
    assert all(seq is job.seq for seq, job in jobs.items())
    assert len({id(job.expires_ms) for job in jobs.values()}) == 1
    assert len({id(job.retry_ms) for job in jobs.values() if job.priority == 5}) == 1
