"""The fold finds nothing in what the engine does, and every lie about it."""

from __future__ import annotations

from random import Random

import pytest

from esker.engine.commands import ConfigureTopic, CreateTopic, Enqueue, NewJob, Purge
from esker.engine.config import TopicConfig
from esker.engine.queues import retention
from esker.spark.pipelines import leaving
from esker.spark.pipelines.codes import Code, Job, Row
from esker.spark.pipelines.facts import Change, ChangeKind, Config
from esker.spark.pipelines.fold import _SLACK, PartitionFold
from esker.spark.pipelines.rules import EVIDENCE_MAX, NOTES, RULES, Findings
from tests.spark.histories import LIES, EventRow, Life, changed, examine, plain_life, random_life, where


@pytest.mark.parametrize("seed", range(12))
def test_an_honest_history_breaks_no_rule(seed: int) -> None:
    """Crashes, restarts, all classes of topics, changes of class and mode, routers, dead letters and replays."""
    life = random_life(seed)
    found = examine(life.rows(), life.alive(), life.queues, heads=life.heads())
    assert found.evidence == []
    assert max(found.letters.values()) <= 0  # every dead letter came where it was sent
    assert set(found.notes) <= set(NOTES)


@pytest.mark.parametrize("seed", range(3))
def test_delays_are_judged_to_the_millisecond_where_the_engine_had_time(seed: int) -> None:
    life = random_life(100 + seed)
    assert examine(life.rows(), grace_ms=0).evidence == []


@pytest.mark.parametrize("seed", range(3))
def test_a_history_that_begins_late_breaks_no_rule(seed: int) -> None:
    """What is older than the history is told as a note, with a snapshot as well."""
    life = random_life(200 + seed)
    rows = life.rows()
    first = Random(seed).randrange(len(life.batches_at) // 4, len(life.batches_at) // 2)
    late = [row for row in rows if int(str(row["position"])) > first]
    found = examine(late, life.alive(), life.queues, heads=life.heads())
    assert found.evidence == []
    assert found.notes["older"]


@pytest.mark.parametrize("seed", range(3))
def test_behind_a_hole_nothing_is_guessed(seed: int) -> None:
    """Rows that are missing are one violation, which the caller knows; what comes later is judged by later rows."""
    life = random_life(300 + seed)
    dice = Random(seed)
    last = max(life.batches_at)
    first = dice.randrange(last // 4, last // 2)
    hole = first, dice.randrange(first, first + last // 4)
    rows = [row for row in life.rows() if not hole[0] <= int(str(row["position"])) <= hole[1]]
    found = examine(rows, life.alive(), life.queues, holes=[hole], heads=life.heads())
    assert found.evidence == []
    assert found.notes["older"]


def test_a_head_that_differs_from_the_history_is_found() -> None:
    life = plain_life()
    heads = life.heads()
    for topic in {place[0] for place in heads}:
        for lie in (heads[topic, 0] - 1, heads[topic, 0] + 1):
            found = examine(life.rows(), heads={**heads, (topic, 0): lie})
            assert [(each.rule, each.topic, each.seq) for each in found.evidence] == [("live_heads", topic, lie)]


def test_a_job_that_used_up_its_deliveries_may_be_deleted() -> None:
    """A client may ask for it, so without a letter beside it that is a note."""
    rows = plain_life().rows()
    at = where(rows, "JobLeased", 4)
    gone = [*rows[: where(rows, "JobRemoved", 4) - 1], {**rows[where(rows, "JobRemoved", 4)], "reason": "deleted"}]
    assert rows[at]["attempts"] == 1
    assert examine(gone).notes["deleted_at_limit"] == 1
    assert examine(gone).evidence == []


def test_the_auditor_knows_from_when_on_the_broker_purges_instead_of_removing() -> None:
    assert leaving.PURGED_TOGETHER_MIN == retention._ONE_BY_ONE


@pytest.mark.parametrize("jobs", [900, 1500])
def test_evictions_and_deletes_of_many_jobs_are_honest(jobs: int) -> None:
    """They are told one by one, or as one purge."""
    life = Life()
    life.do(CreateTopic(b"q", TopicConfig(cap_records=2000)))
    for _ in range(4):
        life.do(Enqueue(b"q", [NewJob(b"x")] * 500))
    life.do(ConfigureTopic(b"q", TopicConfig(cap_records=2000 - jobs)))
    life.do(ConfigureTopic(b"q", TopicConfig()))
    life.do(Purge(b"q"))
    rows = life.rows()
    assert examine(rows, life.alive(), life.queues, heads=life.heads()).evidence == []
    assert {row["kind"] for row in rows} >= {"Purged"}
    assert any(row["kind"] == "JobRemoved" for row in rows) == (jobs == 900)


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_with_its_evidence(lie: str) -> None:
    tell, rule, seq = LIES[lie]
    rows = plain_life().rows()
    assert examine(rows).evidence == []
    found = examine(tell(rows))
    assert set(found.broken) == {rule}
    first = found.evidence[0]
    assert (first.rule, first.seq) == (rule, seq)
    assert first.expected
    assert first.found


def test_every_rule_has_a_lie() -> None:
    others = {"conservation", "live_heads", "continuous_positions"}  # those need more than the rows of a partition
    assert {rule for _, rule, _ in LIES.values()} | others == set(RULES)


def test_a_job_that_the_queue_lost_is_found() -> None:
    life = plain_life()
    alive = life.alive()
    lost = max(alive)
    found = examine(life.rows(), alive - {lost}, life.queues)
    assert [(each.rule, each.topic, each.seq) for each in found.evidence] == [("conservation", lost[0], lost[2])]
    assert "not in the queue" in found.evidence[0].found


def test_a_job_that_came_back_from_the_dead_is_found() -> None:
    life = plain_life()
    queue = max(life.alive())[0]
    found = examine(life.rows(), life.alive() | {(queue, 0, 2)}, life.queues)  # seq 2 was acked
    assert [(each.rule, each.seq) for each in found.evidence] == [("conservation", 2)]


def test_an_ack_that_the_history_lost_is_found_by_the_snapshot() -> None:
    life = plain_life()
    rows = life.rows()
    del rows[where(rows, "JobAcked", 2)]
    assert examine(rows).evidence == []
    found = examine(rows, life.alive(), life.queues)
    assert [(each.rule, each.seq) for each in found.evidence] == [("conservation", 2)]


def test_an_enqueue_that_the_history_lost_is_found() -> None:
    rows = plain_life().rows()
    del rows[where(rows, "Enqueued", 3)]
    assert set(examine(rows).broken) == {"contiguous_seqs", "known_jobs"}


def test_a_lease_over_a_live_one_needs_a_restart_that_is_told() -> None:
    """Queues whose leases are not durable lose them in a restart; a history without restarts cannot tell."""
    rows = plain_life().rows()
    at = where(rows, "JobAcked", 2)
    again: EventRow = {**rows[where(rows, "JobLeased", 2)], "position": rows[at]["position"], "lease": "abc"}
    rows[at : at + 1] = [{**again, "attempts": 2}]
    assert set(examine(rows).broken) == {"one_live_lease"}
    unmarked = [row for row in rows if row["kind"] != "NodeStarted"]
    found = examine(unmarked)
    assert found.evidence == []
    assert found.notes["unmarked_restarts"] == 1
    started = next(row for row in rows if row["kind"] == "NodeStarted")
    restarted = [*rows[:at], {**started, "position": rows[at]["position"], "ordinal": -1}, *rows[at:]]
    assert examine(restarted).evidence == []


def test_a_crash_may_skip_seqs_only_up_to_what_was_reserved() -> None:
    story = [
        Change(1, 0, ChangeKind.CREATED, 0, Config()),
        Change(5, 0, ChangeKind.STARTED, 0),
    ]
    for seq, broken in ((100, set[str]()), (101, {"contiguous_seqs"}), (3, set())):
        findings = Findings()
        fold = PartitionFold(1, 0, story, findings)
        fold.run([Row(2, 0, 0, Code.RESERVED, 100), Row(2, 1, 0, Code.ENQUEUED, 1), Row(2, 2, 0, Code.ENQUEUED, 2)])
        fold.run([Row(6, 0, 0, Code.RESERVED, 200), Row(6, 1, 0, Code.ENQUEUED, seq)])
        assert set(findings.broken) == broken
    findings = Findings()
    fold = PartitionFold(1, 0, story[:1], findings)  # the same without a restart
    fold.run([Row(2, 0, 0, Code.RESERVED, 100), Row(2, 1, 0, Code.ENQUEUED, 1), Row(6, 1, 0, Code.ENQUEUED, 100)])
    assert set(findings.broken) == {"contiguous_seqs"}


def test_memory_is_bounded_by_the_living_jobs_and_evidence_by_its_limit() -> None:
    findings = Findings()
    fold = PartitionFold(1, 0, [Change(0, 0, ChangeKind.CREATED, 0, Config())], findings)
    for seq in range(1, 20_001):  # acked by id, delayed or not, and never leased
        due_ms = 10**9 if seq % 2 else 0
        fold.run([Row(seq, 1, 0, Code.ENQUEUED, seq, due_ms=due_ms), Row(seq, 2, 0, Code.ACKED, seq)])
    assert fold.jobs == {}
    assert len(fold._heap) <= 2 * _SLACK
    assert len(fold._delayed) <= 2 * _SLACK
    for seq in range(1, 1000):
        fold.run([Row(30_000 + seq, 1, 0, Code.ACKED, seq)])
    assert findings.broken["known_jobs"] == 999
    assert len(findings.evidence) == EVIDENCE_MAX


def test_a_deep_inversion_is_ranked() -> None:
    """Of jobs with priorities 0 to 9, the lease of the last is nine too late."""
    ranks: list[int] = []

    class Ranks:
        def came(self, time_ms: int) -> None: ...

        def leased(self, time_ms: int, job: Job, rank: int) -> None:
            ranks.append(rank)

        def settled(self, time_ms: int, job: Job, acked: bool) -> None: ...

        def left(self, time_ms: int, reason: int, count: int) -> None: ...

        def lost_sight(self, count: int) -> None: ...

    for best_of, broken in ((1, 1), (9, 1), (10, 0)):
        findings = Findings()
        fold = PartitionFold(
            1, 0, [Change(0, 0, ChangeKind.CREATED, 0, Config())], findings, best_of=best_of, times=Ranks()
        )
        fold.run([Row(seq, 1, 0, Code.ENQUEUED, seq, 10 - seq) for seq in range(1, 11)])
        fold.run([Row(20, 1, 0, Code.LEASED, 1, 1, "t", 100)])
        assert findings.broken["pop_order"] == broken
    assert ranks == [9, 9, 9]


def test_a_detail_that_is_no_json_makes_a_topic_of_which_nothing_is_known() -> None:
    rows = plain_life().rows()
    at = next(at for at, row in enumerate(rows) if row["kind"] == "TopicCreated" and row["topic"] == "q")
    assert examine(changed(rows, at, detail="{broken")).evidence == []
