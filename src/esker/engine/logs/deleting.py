"""Removing records of a log on request: once, for good, and silently. Nothing that comes later is affected.

Below a seq that costs as much as there are blocks; by tag, as there are records with the tag. Never a walk of the log.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from esker.engine import commands, events
from esker.engine.logs import retention
from esker.engine.logs.block import runs_from
from esker.engine.logs.partition import LogPartition
from esker.engine.replies import Deleted
from esker.errors import Code, Refusal

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def delete(machine: Machine, log: LogPartition, command: commands.DeleteRecords, now: int) -> Deleted | Refusal:
    if command.before_seq is None and command.tag is None:
        return Refusal(Code.BAD_REQUEST, "say what to delete: before_seq, a tag, or both")
    retention.expire(machine, log, now)
    before = log.count
    number = log.topic.number
    below = log.head_seq + 1 if command.before_seq is None else min(command.before_seq, log.head_seq + 1)
    if command.tag is not None:
        seqs = log.tags.find(command.tag, command.prefix)
        runs = runs_from(seqs[: bisect_left(seqs, below)])
        if runs:
            machine.record(log, events.RecordsDeleted(number, 0, now, 0, runs))
    elif below > log.earliest_seq(now):
        machine.record(log, events.RecordsDeleted(number, 0, now, below, []))
    return Deleted(before - log.count, log.earliest_seq(now), log.head_seq, log.count, log.bytes)
