"""Records, and how they get their seqs."""

from __future__ import annotations

import pytest

from esker.engine import limits
from esker.engine.commands import Append, DropTopic, NewRecord
from esker.engine.config import Durability, TopicType
from esker.engine.replies import Record, Written
from esker.errors import Code
from tests.engine.logs.rig import LogRig, T, log_config
from tests.engine.rig import START_MS, expect


def test_a_record_is_read_back_as_it_was_written() -> None:
    rig = LogRig()
    new = NewRecord(b'{"a":1}', b"tag", b"node", b'{"m":"v"}')
    rig.do(Append(T, [new, NewRecord(b"null")]))
    assert list(rig.read().records) == [
        Record(1, START_MS, b'{"a":1}', b"node", b"tag", b'{"m":"v"}'),
        Record(2, START_MS, b"null", b"", b"", b""),
    ]


def test_seqs_begin_at_1_and_are_in_a_row_over_all_writes() -> None:
    rig = LogRig()
    assert rig.write(b"1", b"2", b"3") == Written(1, 3, 3, created=False, deduped=False)
    assert rig.write(b"4") == Written(4, 4, 4, created=False, deduped=False)
    assert rig.seqs() == [1, 2, 3, 4]


def test_a_write_that_is_refused_writes_nothing() -> None:
    rig = LogRig()
    big = NewRecord(b"1" * (limits.RECORD_BYTES_MAX + 1))
    assert rig.code(Append(T, [NewRecord(b"1"), big])) == Code.RECORD_TOO_LARGE
    assert rig.state().head_seq == 0
    assert rig.write(b"1").first_seq == 1


def test_all_records_of_a_write_share_a_time_and_times_never_go_back() -> None:
    rig = LogRig()
    rig.write(b"1", b"2")
    rig.now += 5
    rig.write(b"3")
    rig.now -= 100
    rig.write(b"4")
    assert [record.ts - START_MS for record in rig.read().records] == [0, 0, 5, 5]


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (NewRecord(b"1" * limits.RECORD_BYTES_MAX), None),
        (NewRecord(b"1" * (limits.RECORD_BYTES_MAX - 1), meta=b"{}"), Code.RECORD_TOO_LARGE),
        (NewRecord(b"1", tag=b"t" * 256, node=b"n" * 128), None),
        (NewRecord(b"1", tag=b"t" * 257), Code.BAD_REQUEST),
        (NewRecord(b"1", node=b"n" * 129), Code.BAD_REQUEST),
        (NewRecord(b"1", meta=b'{"k":"' + b"v" * 16_376 + b'"}'), None),
        (NewRecord(b"1", meta=b'{"k":"' + b"v" * 16_377 + b'"}'), Code.BAD_REQUEST),
        (NewRecord(b"1", meta=b"{" + b",".join(b'"%d":1' % key for key in range(64)) + b"}"), None),
        (NewRecord(b"1", meta=b"{" + b",".join(b'"%d":1' % key for key in range(65)) + b"}"), Code.BAD_REQUEST),
        (NewRecord(b"1", meta=b"[1]"), Code.BAD_REQUEST),
    ],
)
def test_the_limits_of_a_record_are_kept_to_the_byte(record: NewRecord, code: Code | None) -> None:
    rig = LogRig()
    if code is None:
        expect(Written, rig.do(Append(T, [record])))
    else:
        assert rig.code(Append(T, [record])) == code


def test_a_write_has_1_to_10_000_records() -> None:
    rig = LogRig()
    assert rig.code(Append(T, [])) == Code.BAD_REQUEST
    assert rig.write_many(10_000).last_seq == 10_000
    refusal = rig.refused(Append(T, [NewRecord(b"1")] * 10_001))
    assert (refusal.code, refusal.detail) == (Code.BATCH_TOO_LARGE, {"records": 10_001, "max": 10_000})


def test_a_missing_topic_is_made_on_the_first_write_as_a_log_of_class_disk() -> None:
    rig = LogRig()
    assert rig.write(b"1", topic=b"new").created
    config = rig.state(topic=b"new").config
    assert (config.type, config.durability, config.idempotency_window_ms) == (TopicType.LOG, Durability.DISK, 120_000)
    assert not rig.write(b"2", topic=b"new").created


def test_a_missing_topic_is_made_with_the_config_of_the_write() -> None:
    rig = LogRig()
    rig.do(Append(b"new", [NewRecord(b"1")], config=log_config(cap_records=7)))
    assert rig.state(topic=b"new").config.cap_records == 7


def test_a_write_that_must_not_create_does_not() -> None:
    rig = LogRig()
    refusal = rig.refused(Append(b"new", [NewRecord(b"1")], create=False))
    assert (refusal.code, refusal.detail) == (Code.TOPIC_NOT_FOUND, {"topic": b"new"})
    assert b"new" not in rig.world.machine.names


def test_a_bad_record_does_not_create_its_topic() -> None:
    rig = LogRig()
    assert rig.code(Append(b"new", [NewRecord(b"1", tag=b"t" * 257)])) == Code.BAD_REQUEST
    assert b"new" not in rig.world.machine.names


def test_a_repeated_key_adds_nothing_and_is_answered_like_the_first_time() -> None:
    rig = LogRig()
    rig.write(b"0")
    first = rig.write(b"1", b"2", key=b"k")
    rig.write(b"3")
    assert rig.write(b"1", b"2", key=b"k") == Written(2, 3, first.head_seq, created=False, deduped=True)
    assert rig.seqs() == [1, 2, 3, 4]


def test_a_key_is_forgotten_after_its_window() -> None:
    rig = LogRig(idempotency_window_ms=1000)
    rig.write(b"1", key=b"k")
    rig.now += 999
    assert rig.write(b"1", key=b"k").deduped
    rig.now += 1
    assert not rig.write(b"1", key=b"k").deduped


@pytest.mark.parametrize("saved", [True, False])
def test_a_key_survives_a_crash_with_its_records(saved: bool) -> None:
    rig = LogRig()
    rig.write(b"1", b"2", key=b"k")
    if saved:
        rig.checkpoint()
    rig.crash()
    assert rig.write(b"1", b"2", key=b"k") == Written(1, 2, 2, created=False, deduped=True)


def test_keys_of_topics_do_not_meet() -> None:
    rig = LogRig()
    rig.write(b"1", key=b"k")
    assert not rig.write(b"1", key=b"k", topic=b"other").deduped


def test_a_topic_made_anew_starts_at_1_again() -> None:
    rig = LogRig()
    rig.write(b"1", b"2", key=b"k")
    rig.do(DropTopic(T))
    assert rig.write(b"1", key=b"k") == Written(1, 1, 1, created=True, deduped=False)


def test_large_records_fill_blocks_of_their_own() -> None:
    rig = LogRig()
    rig.write(*[b"1" * limits.BLOCK_BYTES_MAX] * 3, b"2", b"3")
    assert [(block.first_seq, block.count) for block in rig.log.blocks] == [(1, 1), (2, 1), (3, 1), (4, 2)]
    assert rig.seqs() == [1, 2, 3, 4, 5]


def test_small_records_fill_blocks_to_the_last() -> None:
    rig = LogRig()
    for _ in range(3):
        rig.write_many(200)
    assert [block.count for block in rig.log.blocks] == [256, 256, 88]
