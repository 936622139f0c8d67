"""Counts everything of the logs anew: blocks and marks are the truth, and each sum and index must say the same."""

from __future__ import annotations

from esker.engine.logs.block import hot_size, offsets
from esker.engine.logs.partition import LogPartition
from esker.engine.machine import Machine


def audit_logs(machine: Machine) -> None:
    """Raises AssertionError where a derived fact does not follow from the blocks."""
    logs = [topic.log for topic in machine.topics.values() if topic.log is not None]
    queued = sum(partition.hot_bytes for topic in machine.topics.values() for partition in topic.partitions)
    assert machine.totals.hot_bytes == queued + sum(log.hot_bytes for log in logs)
    assert machine.sorted_names.in_order() == sorted(machine.names)
    wakes = set(machine.wakes)
    for log in logs:
        _audit_blocks(log)
        _audit_sums(log)
        _audit_tags(log)
        if log.wake_ms:
            assert (log.wake_ms, log.topic.number, 0) in wakes
        else:
            assert not (log.blocks and log.topic.config.ttl_ms), "what expires is never reclaimed"


def _audit_blocks(log: LogPartition) -> None:
    assert all(block.live for block in log.blocks), "a block of the dead stays"
    assert all(block.count and block.gone >> block.count == 0 for block in log.blocks)
    assert all(one.end <= other.first_seq for one, other in zip(log.blocks, log.blocks[1:], strict=False))
    assert all(one.last_ts <= other.first_ts for one, other in zip(log.blocks, log.blocks[1:], strict=False))
    assert not log.blocks or log.blocks[-1].end <= log.head_seq + 1 <= log.next_seq
    for gap in log.gaps.all:
        assert gap.first <= gap.last <= log.head_seq
        assert not any(block.first_seq <= gap.last and block.end > gap.first for block in log.blocks)
    for block in log.blocks:
        content = log.content(block)
        assert len(content.bodies) >= block.count
        assert content.ts(0) == block.first_ts
        assert content.ts(block.count - 1) == block.last_ts
        assert content.starts == sorted(set(content.starts))
        assert content.starts[0] == 0


def _found(log: LogPartition, tag: bytes, prefix: bool) -> list[int]:
    return [seq for piece in log.tags.find(tag, prefix) for seq in log.living(piece)]


def _audit_sums(log: LogPartition) -> None:
    assert log.count == sum(block.live.bit_count() for block in log.blocks)
    assert log.bytes == sum(block.live_bytes for block in log.blocks)
    assert log.hot_bytes == sum(block.hot_bytes for block in log.blocks)
    for block in log.blocks:
        bodies = log.content(block).bodies
        assert block.live_bytes == sum(len(bodies[at].data) + len(bodies[at].meta) for at in offsets(block.live))
        if block.sizes is not None:
            sizes = block.sizes
            assert len(sizes) == block.count
            assert all(sizes[at] == len(bodies[at].data) + len(bodies[at].meta) for at in offsets(block.live))
        if block.content is None:
            assert block.hot_bytes == 0
        else:
            assert block.hot_bytes == hot_size(block.content.bodies)


def _audit_tags(log: LogPartition) -> None:
    tagged: dict[bytes, list[int]] = {}
    for block in log.blocks:
        bodies = log.content(block).bodies
        for offset in offsets(block.live):
            if bodies[offset].tag:
                tagged.setdefault(bodies[offset].tag, []).append(block.first_seq + offset)
    for tag, seqs in tagged.items():
        assert _found(log, tag, prefix=False) == seqs, "a tag has lost a record"
    assert _found(log, b"", prefix=True) == sorted(seq for seqs in tagged.values() for seq in seqs)
