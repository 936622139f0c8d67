"""Lets payloads leave memory once the store has them, while there are more of them than the budget allows.

The rule that makes it safe is kept by the block itself: it counts how many of its records the store has
(`Block.coolable`). So it does not matter in which order slices are made, written and cooled. A job's payload never
changes, so that it was in a written slice is enough, unless the next checkpoint removes it again
(`QueuePartition.cool`).
"""

from __future__ import annotations

from esker.engine.machine import Machine
from esker.store.slices import Slice


def cool(machine: Machine, written: Slice, budget_bytes: int) -> None:
    """Call it when the store has `written` durably: what it loses when it is opened again must still be in memory."""
    for log, block, count in written.blocks:
        block.stored = max(block.stored, count)
        machine.warmth.saved(log, block)
    for log, change in written.marks:
        if log.unjournaled_marks == change:
            log.unjournaled_marks = 0
    machine.warmth.cool(budget_bytes)
    for partition, job in written.saved:
        if machine.totals.hot_bytes <= budget_bytes:
            return
        if job.payload is not None and partition.jobs.get(job.seq) is job:
            partition.cool(job)
