"""Topics of any type: made, changed, looked at, listed and dropped."""

from __future__ import annotations

from esker.engine.commands import (
    Append,
    ConfigureTopic,
    DropTopic,
    Enqueue,
    Lease,
    ListTopics,
    NewJob,
    NewRecord,
    PutTopic,
    TopicState,
)  # fmt: skip
from esker.engine.config import TopicConfig, TopicType
from esker.engine.replies import Tombstone, TopicDropped, TopicPage, TopicPut
from esker.errors import Code
from tests.engine.logs.rig import LogRig, T, log_config
from tests.engine.rig import expect


def page(
    rig: LogRig, prefix: bytes = b"", after: bytes = b"", count: int = 100, touch: bool = False
) -> tuple[list[bytes], bool]:
    reply = expect(TopicPage, rig.do(ListTopics(prefix, after, count, touch)))
    return [status.name for status in reply.topics], reply.more


def test_putting_a_topic_makes_it_once() -> None:
    rig = LogRig()
    assert expect(TopicPut, rig.do(PutTopic(b"new", log_config()))).created
    before = rig.world.journal.last_position
    assert not expect(TopicPut, rig.do(PutTopic(b"new", log_config()))).created
    assert rig.world.journal.last_position == before, "the same config again is no event"


def test_the_type_of_a_topic_cannot_change() -> None:
    rig = LogRig()
    refusal = rig.refused(PutTopic(T, TopicConfig(type=TopicType.QUEUE)))
    assert refusal.code == Code.TOPIC_INCOMPATIBLE
    assert refusal.detail == {"existing_type": "log", "requested_type": "queue"}
    assert rig.code(ConfigureTopic(T, TopicConfig())) == Code.BAD_REQUEST


def test_a_config_that_is_not_sound_is_refused() -> None:
    rig = LogRig()
    assert rig.code(PutTopic(T, log_config(ttl_ms=-1))) == Code.BAD_REQUEST
    assert rig.code(PutTopic(b"new", log_config(partitions=2))) == Code.BAD_REQUEST


def test_a_log_is_no_queue() -> None:
    rig = LogRig()
    assert rig.code(Lease(T)) == Code.NOT_A_QUEUE
    assert rig.code(Enqueue(T, [NewJob(b"x")])) == Code.NOT_A_QUEUE


def test_a_queue_is_written_and_counted_like_a_log() -> None:
    rig = LogRig()
    rig.do(PutTopic(b"q", TopicConfig(type=TopicType.QUEUE)))
    rig.do(Append(b"q", [NewRecord(b"1"), NewRecord(b"2")]))
    state = rig.state(topic=b"q")
    assert (state.head_seq, state.earliest_seq, state.count, state.ready) == (2, 1, 2, 2)
    assert [record.seq for record in rig.read(topic=b"q").records] == [1, 2]


def test_the_state_of_a_topic_that_never_was_written_to() -> None:
    rig = LogRig()
    state = rig.state()
    assert (state.head_seq, state.earliest_seq, state.count, state.bytes) == (0, 1, 0, 0)
    assert (state.last_write_ms, state.last_read_ms, state.effective_priority) == (0, 0, 0)


def test_looking_counts_as_consuming_unless_asked_not_to() -> None:
    rig = LogRig()
    assert rig.state(touch=False).last_read_ms == 0
    assert rig.state(touch=True).last_read_ms == rig.now
    rig.now += 30_000
    assert (rig.state(touch=False).last_read_ms, rig.state(touch=False).effective_priority) == (rig.now - 30_000, 250)


def test_a_missing_topic_has_no_state() -> None:
    rig = LogRig()
    refusal = rig.refused(TopicState(b"new"))
    assert (refusal.code, refusal.detail) == (Code.TOPIC_NOT_FOUND, {"topic": b"new"})


def test_dropping_takes_everything_and_dropping_again_nothing() -> None:
    rig = LogRig()
    rig.write_many(3)
    assert rig.do(DropTopic(T)) == TopicDropped(True, 3, [])
    assert rig.do(DropTopic(T)) == TopicDropped(False, 0, ())
    assert rig.world.machine.totals.hot_bytes == 0
    rig.checkpoint()
    rig.crash()
    assert T not in rig.world.machine.names
    assert [key for key, _ in rig.world.store.scan(b"n", b"z")] == []


def test_dropping_only_if_empty() -> None:
    rig = LogRig()
    rig.write_many(3)
    refusal = rig.refused(DropTopic(T, if_empty=True))
    assert (refusal.code, refusal.detail) == (Code.TOPIC_NOT_EMPTY, {"topic": T, "count": 3})
    rig.delete(before=4)
    assert expect(TopicDropped, rig.do(DropTopic(T, if_empty=True))).deleted


def test_a_reader_of_a_topic_made_anew_is_told() -> None:
    rig = LogRig()
    rig.write_many(5)
    rig.do(DropTopic(T))
    rig.put()
    rig.write(b"1", b"2")
    reply = rig.read(5)
    assert reply.tombstone == Tombstone(1, 2, "recreated", 2, 1, 2)
    assert [record.seq for record in reply.records] == [1, 2]


def test_topics_are_listed_in_order_of_their_names_page_by_page() -> None:
    rig = LogRig()
    for number in range(120):
        rig.put(b"n%03d" % (number * 7 % 120))
    names = [b"n%03d" % number for number in range(120)]
    assert page(rig) == (names[:100], True)
    assert page(rig, after=names[99]) == ([*names[100:], T], False)
    assert page(rig, prefix=b"n01") == (names[10:20], False)
    assert page(rig, prefix=b"n01", count=10) == (names[10:20], False)
    assert page(rig, prefix=b"n01", count=4, after=b"n013") == (names[14:18], True)
    assert page(rig, prefix=b"zz") == ([], False)


def test_listing_follows_topics_that_come_and_go() -> None:
    rig = LogRig()
    rig.put(b"b")
    assert page(rig) == ([b"b", T], False)
    rig.put(b"a")
    rig.do(DropTopic(b"b"))
    rig.put(b"c")
    rig.do(DropTopic(b"c"))
    assert page(rig) == ([b"a", T], False)
    rig.restart()
    assert page(rig) == ([b"a", T], False)


def test_listing_does_not_count_as_consuming_unless_asked_to() -> None:
    rig = LogRig()
    page(rig)
    assert rig.state().last_read_ms == 0
    page(rig, touch=True)
    assert rig.state().last_read_ms == rig.now
