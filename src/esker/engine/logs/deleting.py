"""Removing records of a log on request: once, for good, and silently. Nothing that comes later is affected.

Below a seq that costs as much as there are blocks; by tag, as there are records with the tag. Never a walk of the log.
Both go in bounded steps (deletion.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.logs import retention
from esker.engine.logs.block import runs_from
from esker.engine.logs.partition import LogPartition

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def steps(machine: Machine, log: LogPartition, command: commands.DeleteRecords, now: int) -> Iterator[int]:
    """What is to go is fixed here, and goes as the result is iterated over: each step says how many went."""
    retention.expire(machine, log, now)
    end = log.head_seq + 1
    below = end if command.before_seq is None else min(command.before_seq, end)
    if command.tag is None:
        return _steps_below(machine, log, below)
    return _steps_of(machine, log, log.tags.find(command.tag, command.prefix), below)


def _steps_of(machine: Machine, log: LogPartition, found: Iterator[list[int]], below: int) -> Iterator[int]:
    for seqs in found:
        runs = runs_from(log.living(seqs[: bisect_left(seqs, below)]))
        if runs:
            machine.record(log, events.RecordsDeleted(log.topic.number, 0, machine.last_ms, 0, runs))
        yield sum(runs[1::2])


def _steps_below(machine: Machine, log: LogPartition, below: int) -> Iterator[int]:
    while below > log.earliest_seq(machine.last_ms):
        blocks, before = log.blocks, log.count
        most = limits.DELETE_STEP_BLOCKS
        upto = below if len(blocks) <= most else min(below, blocks[most].first_seq)
        machine.record(log, events.RecordsDeleted(log.topic.number, 0, machine.last_ms, upto, []))
        yield before - log.count
