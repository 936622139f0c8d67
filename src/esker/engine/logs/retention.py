"""What a log keeps: by age, by number and by size. The floors are exact to the record, space is freed by the block.

A log that drops its oldest takes a write first and then moves its floor. One that refuses is asked before a write gets
its seqs. Age is a fact of time: readers never see an expired record, and a tick frees its space some time later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.engine import events
from esker.engine.config import Discard, TopicConfig
from esker.engine.logs import forwarding
from esker.engine.logs.block import offsets
from esker.engine.logs.partition import LogPartition
from esker.errors import Code, Refusal

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def room_problem(
    machine: Machine, log: LogPartition | None, config: TopicConfig, count: int, size: int, now: int
) -> Refusal | None:
    """Why a topic that refuses when full cannot take `count` records of `size` bytes. `log` None: it is yet to be."""
    if config.discard != Discard.REJECT or not (config.cap_records or config.cap_bytes):
        return None
    if log is not None:
        expire(machine, log, now)
    held, held_bytes = (0, 0) if log is None else (log.count, log.bytes)
    detail = {
        "cap_records": config.cap_records,
        "cap_bytes": config.cap_bytes,
        "head_seq": 0 if log is None else log.head_seq,
        "earliest_seq": 1 if log is None else log.earliest_seq(now),
    }
    for cap, amount, there, what in (
        (config.cap_records, count, held, "records"),
        (config.cap_bytes, size, held_bytes, "bytes"),
    ):
        if cap and amount > cap:
            return Refusal(
                Code.RECORD_TOO_LARGE, f"a write of {amount} {what}; the topic holds at most {cap} in all", detail
            )
        if cap and there + amount > cap:
            return Refusal(
                Code.TOPIC_FULL, f"the topic holds {there} {what}; {amount} more would pass its cap of {cap}", detail
            )
    return None


def expire(machine: Machine, log: LogPartition, now: int) -> None:
    """Notices what is too old by now. From here on all numbers of the log are exact."""
    floor = log.expired_floor(now)
    if floor > log.ttl_floor:
        machine.record(log, events.LogTrimmed(log.topic.number, 0, now, log.cap_floor, floor), sync=False)


def enforce_caps(machine: Machine, log: LogPartition, now: int) -> None:
    """Lets go of the oldest until the log is within its caps. Call it after records came, or a cap was tightened."""
    if _excess(log) is None:
        return
    expire(machine, log, now)
    excess = _excess(log)
    if excess is None:
        return
    floor = _floor_behind(log, *excess)
    forwarding.before_loss(machine, log.topic, now, floor)
    if floor > log.cap_floor:  # else routers that form a ring have filled this very log, and it is trimmed already
        machine.record(log, events.LogTrimmed(log.topic.number, 0, now, floor, log.ttl_floor), sync=False)


def _excess(log: LogPartition) -> tuple[int, int] | None:
    """Records and bytes beyond the caps; None: there are none."""
    config = log.topic.config
    records = log.count - config.cap_records if config.cap_records else 0
    size = log.bytes - config.cap_bytes if config.cap_bytes else 0
    return (records, size) if records > 0 or size > 0 else None


def _floor_behind(log: LogPartition, records: int, size: int) -> int:
    """The floor that lets go of so many living records and so many bytes, and of no record more than that takes."""
    floor = log.cap_floor
    for block in log.blocks:
        living = block.live.bit_count()
        if records >= living or size > block.live_bytes:
            records -= living
            size -= block.live_bytes
            floor = block.first_seq + block.live.bit_length()
        else:
            outline = log.outline(block)
            for offset in offsets(block.live):
                if records <= 0 and size <= 0:
                    break
                records -= 1
                size -= outline.size_at(offset)
                floor = block.first_seq + offset + 1
        if records <= 0 and size <= 0:
            break
    return floor


def run_timers(machine: Machine, log: LogPartition, now: int) -> int:
    """A wake of this log has come. Returns how much was done, for the bound of a turn."""
    expire(machine, log, now)
    log.tags.sweep()
    log.sleep(now)
    return 1
