"""A delete of many records goes in steps, so that nobody waits for it."""

from __future__ import annotations

from random import Random

import pytest

from esker.engine import limits
from esker.engine.commands import Append, DeleteMore, DeleteRecords, DeleteTopic, NewRecord, TopicState
from esker.engine.deletion import Deletion
from esker.engine.replies import Deleted, TopicStatus
from esker.errors import Code
from tests.engine.logs.audit import audit_logs
from tests.engine.rig import Rig, expect

T = b"t"


def _begun(rig: Rig, command: DeleteRecords) -> tuple[Deleted, Deletion]:
    reply = expect(Deleted, rig.do(command))
    assert reply.rest is not None
    return reply, reply.rest


def test_a_delete_of_many_tags_goes_in_bounded_steps() -> None:
    rig, count = _tagged(5 * limits.DELETE_STEP)
    reply, rest = _begun(rig, DeleteRecords(T, tag=b"tag-", prefix=True))
    steps = 0
    while reply.rest is not None:
        before = reply.count
        reply = expect(Deleted, rig.do(DeleteMore(T, rest)))
        assert before - reply.count <= 2 * limits.DELETE_STEP
        steps += 1
    assert (reply.deleted, reply.count) == (count, 0)
    assert steps >= 5
    audit_logs(rig.machine)


def test_what_comes_while_a_delete_goes_on_stays() -> None:
    rig, count = _tagged(4 * limits.DELETE_STEP)
    reply, rest = _begun(rig, DeleteRecords(T, tag=b"tag-", prefix=True))
    rig.do(Append(T, [NewRecord(b"late", b"tag-1"), NewRecord(b"late", b"tag-new")]))
    while reply.rest is not None:
        reply = expect(Deleted, rig.do(DeleteMore(T, rest)))
    assert (reply.deleted, reply.count) == (count, 2)
    audit_logs(rig.machine)


def test_a_delete_ends_when_its_topic_is_made_anew() -> None:
    rig, _ = _tagged(4 * limits.DELETE_STEP)
    _, rest = _begun(rig, DeleteRecords(T, tag=b"tag-", prefix=True))
    rig.do(DeleteTopic(T))
    rig.do(Append(T, [NewRecord(b"new", b"tag-1")]))
    assert rig.code(DeleteMore(T, rest)) == Code.TOPIC_NOT_FOUND
    assert expect(TopicStatus, rig.do(TopicState(T))).count == 1


def test_a_delete_below_a_seq_goes_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DELETE_STEP_BLOCKS", 2)
    rig, count = _tagged(20 * limits.BLOCK_RECORDS_MAX)
    reply, rest = _begun(rig, DeleteRecords(T, before_seq=count))
    while reply.rest is not None:
        before = reply.count
        reply = expect(Deleted, rig.do(DeleteMore(T, rest)))
        assert before - reply.count <= 4 * limits.BLOCK_RECORDS_MAX
    assert (reply.deleted, reply.count, reply.earliest_seq) == (count - 1, 1, count)
    audit_logs(rig.machine)


def test_a_prefix_finds_tags_that_went_and_came_again() -> None:
    rig, count = _tagged(3 * limits.DELETE_STEP)
    for _ in range(3):
        reply = expect(Deleted, rig.do(DeleteRecords(T, tag=b"tag-", prefix=True)))
        while reply.rest is not None:
            reply = expect(Deleted, rig.do(DeleteMore(T, reply.rest)))
        rig.pass_ms(1000)
        _add_tagged(rig, count)
    audit_logs(rig.machine)
    reply = expect(Deleted, rig.do(DeleteRecords(T, tag=b"tag-1", prefix=True)))
    while reply.rest is not None:
        reply = expect(Deleted, rig.do(DeleteMore(T, reply.rest)))
    assert reply.deleted == sum(str(number).startswith("1") for number in range(count))


def _tagged(count: int) -> tuple[Rig, int]:
    """A log of records with a tag each."""
    rig = Rig()
    _add_tagged(rig, count)
    return rig, count


def _add_tagged(rig: Rig, count: int) -> None:
    tags = [b"tag-%d" % number for number in range(count)]
    Random(1).shuffle(tags)
    for at in range(0, count, 1000):
        rig.do(Append(T, [NewRecord(b"x", tag) for tag in tags[at : at + 1000]]))
