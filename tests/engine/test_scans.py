"""Scans: a job that lives through the whole scan is seen, whatever happens between the pages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from esker.engine.commands import Ack, CreateTopic, DeleteTopic, Purge, ScanJobs, ScanTopics
from esker.engine.config import TopicConfig
from esker.engine.replies import Jobs, Topics
from tests.engine.rig import Q, Rig, expect

NAMES = (b"a", b"b", b"c")

changes = st.lists(
    st.tuples(
        st.sampled_from(["add", "ack", "purge", "recreate", "nothing"]), st.sampled_from(NAMES), st.integers(0, 50)
    ),
    max_size=6,
)


def change(rig: Rig, alive: dict[int, bytes], what: str, name: bytes, number: int) -> None:
    """Changes the machine, and what must be alive in it."""
    if what == "add":
        alive.update((rig.add(topic=name), name) for _ in range(number % 5))
    elif what == "ack" and alive:
        victims = list(alive)[number % len(alive) :][:7]
        rig.do(Ack(victims))
        for job_id in victims:
            del alive[job_id]
    elif what in ("purge", "recreate"):
        rig.do(Purge(name) if what == "purge" else DeleteTopic(name))
        for job_id in [job_id for job_id, topic in alive.items() if topic == name]:
            del alive[job_id]
        if what == "recreate":
            rig.do(CreateTopic(name, TopicConfig(partitions=2)))


def three_queues() -> Rig:
    rig = Rig()
    for name, partitions in zip(NAMES, (1, 3, 1), strict=True):
        rig.do(CreateTopic(name, TopicConfig(partitions=partitions)))
    return rig


@given(st.lists(changes, min_size=1, max_size=30), changes, st.integers(1, 7), st.sampled_from([None, *NAMES]))
def test_every_job_that_lives_through_a_scan_is_seen_once(
    between: list[list[tuple[str, bytes, int]]],
    before: list[tuple[str, bytes, int]],
    count: int,
    topic: bytes | None,
) -> None:
    rig = three_queues()
    alive: dict[int, bytes] = {}
    for step in [("add", name, 4) for name in NAMES] * 3 + before:
        change(rig, alive, *step)
    survivors = set(alive)
    seen: list[int] = []
    cursor, pages = 0, iter(between)
    while True:
        page = expect(Jobs, rig.do(ScanJobs(cursor, count, topic)))
        seen += [job.id for job in page.jobs]
        assert len(page.jobs) <= count
        cursor = page.cursor
        if not cursor:
            break
        for step in next(pages, []):
            change(rig, alive, *step)
        survivors &= set(alive)
    wanted = {job_id for job_id in survivors if topic in (None, alive[job_id])}
    assert wanted <= set(seen)
    assert len(seen) == len(set(seen)), "a job was seen twice"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=40), st.integers(1, 5))
def test_every_topic_that_lives_through_a_scan_is_seen_once(changes: list[tuple[bool, int]], count: int) -> None:
    rig = Rig()
    for number in range(10):
        rig.do(CreateTopic(b"%d" % number, TopicConfig()))
    survivors = set(rig.machine.topics)
    seen: list[int] = []
    cursor, steps = 0, iter(changes)
    while True:
        page = expect(Topics, rig.do(ScanTopics(cursor, count)))
        seen += [topic.number for topic in page.topics]
        cursor = page.cursor
        if not cursor:
            break
        create, number = next(steps, (False, -1))
        rig.do(CreateTopic(b"%d" % number, TopicConfig()) if create else DeleteTopic(b"%d" % number))
        survivors &= set(rig.machine.topics)
    assert survivors <= set(seen)
    assert len(seen) == len(set(seen))


def test_a_scan_of_few_jobs_far_apart_finds_them() -> None:
    rig = Rig(TopicConfig())
    ids = rig.add_many(*[b"x"] * 2000)
    kept = ids[::500]
    rig.do(Ack([job_id for job_id in ids if job_id not in kept]))
    seen: list[int] = []
    cursor = 0
    while True:
        page = expect(Jobs, rig.do(ScanJobs(cursor, 1)))
        seen += [job.id for job in page.jobs]
        if not (cursor := page.cursor):
            break
    assert seen == kept


def test_a_scan_always_gets_on_whatever_count_it_asks_for() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(b"1", b"2")
    rig.do(CreateTopic(b"other", TopicConfig()))
    for count in (0, -1):
        assert len(expect(Jobs, rig.do(ScanJobs(0, count, Q))).jobs) == 1
        assert len(expect(Topics, rig.do(ScanTopics(0, count))).topics) == 1
