"""Plays one seed: traffic, time, checkpoints, faults, crashes and restarts, with everything read back often."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from esker.engine import limits
from esker.engine.logs import cold, forwarding, sources
from esker.engine.logs.partition import LogPartition
from esker.engine.queues import snapshot
from esker.engine.queues.partition import QueuePartition
from esker.errors import ShardStopped
from esker.node import checkpointer, loopwatch, moving
from esker.node.checkpointer import Checkpointer
from esker.store import checkpoint, idempotency, jobs, logs
from esker.store.cold import ColdStore
from tests.wholenode.simulation import Simulation
from tests.wholenode.topics import WAITS_S
from tests.wholenode.traffic import Traffic

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

SEGMENT = ".segment"


@contextmanager
def small_bounds(sim: Simulation) -> Iterator[None]:
    """So small that a few records fill a block, a few blocks a slice and a few slices the memory; and counted."""
    dice = sim.dice
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "BLOCK_RECORDS_MAX", dice.choice((3, 10, 40)))
        patch.setattr(limits, "BLOCK_BYTES_MAX", dice.choice((200, 1500, 6000)))
        patch.setattr(limits, "SEQ_RESERVE", 5)
        patch.setattr(limits, "TIMERS_PER_TURN", 5)
        patch.setattr(limits, "FORWARD_COPIES_PER_STEP", dice.choice((3, 50)))
        patch.setattr(cold, "_KEPT", dice.choice((1, 3)))
        keys, size = dice.choice((4, 12)), dice.choice((200, 2000))
        for module in (checkpoint, jobs, logs, idempotency):
            patch.setattr(module, "WRITE_KEYS", keys)
        for module in (jobs, logs):
            patch.setattr(module, "WRITE_BYTES", size)
        patch.setattr(jobs, "_LOOK", 8)
        patch.setattr(checkpointer, "_SLICES_PER_SYNC", dice.choice((1, 3)))
        patch.setattr(snapshot, "SLICE_SEQS", 5)
        patch.setattr(moving, "FILE_ROWS", 12)
        patch.setattr(moving, "FILE_BYTES", 1500)
        patch.setattr(moving, "_ROUND_S", 2.0)
        patch.setattr(moving, "_RETRY_S", 0.7)
        patch.setattr(loopwatch, "_EVERY_S", 0.5)
        _count(patch, sim.counts)
        yield


def _count(patch: pytest.MonkeyPatch, counts: Counter[str]) -> None:
    for owner, name, what in (
        (LogPartition, "cool", "blocks cooled"),
        (QueuePartition, "cool", "payloads cooled"),
        (ColdStore, "block", "blocks read back"),
        (ColdStore, "payload", "payloads read back"),
        (cold.ColdBlocks, "take", "tails taken back to be written on"),
        (checkpointer, "cool", "slices written"),
        (Checkpointer, "_checkpoint", "checkpoints begun"),
        (sources, "again", "copies of routers made again"),
        (forwarding, "_derive", "copies of routers made"),
        (LogPartition, "archived", "files taken into a log"),
    ):
        patch.setattr(owner, name, _counted(getattr(owner, name), counts, what))


def _counted(function: Callable[_Given, _Result], counts: Counter[str], what: str) -> Callable[_Given, _Result]:
    @wraps(function)
    def counted(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        counts[what] += 1
        return function(*args, **kwargs)

    return counted


def play(seed: int, steps: int, trace: bool = False, directory: Path | None = None) -> Simulation:
    """Raises AssertionError when the node broke a promise. The same seed and steps always play the same.

    With a `directory` the store is RocksDB there: what of it a crash leaves is then not for the seed to say.
    """
    sim = Simulation(seed, trace, directory)
    try:
        with small_bounds(sim):
            sim.loop.run_until_complete(_play(sim, steps))
    except BaseException as error:
        error.add_note(f"seed {seed}, life {sim.lives}, {sum(sim.counts.values())} things counted")
        if sim.trace is not None:
            error.add_note("\n".join(sim.trace[-60:]))
        raise
    finally:
        for task in asyncio.all_tasks(sim.loop):
            task.cancel()
        sim.loop.run_until_complete(asyncio.sleep(0))
        sim.loop.close()
        sim.store.dead = False
        sim.store.close()
    return sim


async def _play(sim: Simulation, steps: int) -> None:
    sim.start()
    sim.reference.began(0)
    traffic = Traffic(sim)
    dice = sim.dice
    for _ in range(steps):
        chance = dice.random()
        try:
            if chance < 0.010:
                await _crash(sim, traffic)
            elif chance < 0.013 and not sim.faulted:
                traffic.forget()
                await sim.restart()
            elif chance < 0.028 and not sim.faulted:
                await sim.check_everything()
            elif chance < 0.08:
                sim.node.checkpointer.ask()
            elif chance < 0.083:
                sim.faulted = True
                if dice.random() < 0.5:
                    sim.disk.fail_sync(dice.randint(1, 3), SEGMENT)
                else:
                    sim.disk.tear_write(dice.randint(0, 300))
            else:
                for _ in range(dice.choice((1, 1, 1, 4))):
                    traffic.act()
        except ShardStopped:
            assert sim.faulted
            await _crash(sim, traffic)
        # In the middle of a checkpoint there is most to break: then turns go by one at a time.
        if sim.node.checkpointer.running and dice.random() < 0.9:
            await asyncio.sleep(0)
            sim.check_cold()
        elif dice.random() < 0.6:
            await asyncio.sleep(dice.choice(WAITS_S))
        if sim.failure is not None:
            raise sim.failure
        if sim.node.shard.stopped is not None:
            stopped = sim.node.shard.stopped
            if not sim.faulted:
                raise AssertionError(f"the shard stopped by itself: {stopped}") from stopped.__cause__
            sim.counts["shards stopped by a failing disk"] += 1
            await _crash(sim, traffic)
    if sim.faulted:
        await _crash(sim, traffic)
    traffic.forget()
    await sim.check_everything()
    await sim.restart()
    await sim.check_everything()
    await sim.node.close()
    sim.counts["lives"] += sim.lives
    sim.counts["stalls of the store"] += sim.store.stalls
    sim.counts["failures of the store"] += sim.store.failures
    if sim.archive is not None:
        sim.counts["files written to the archive"] += sim.archive.puts
        sim.counts["files removed from the archive"] += sim.archive.deletes
        sim.counts["times the archive was out of reach"] += sim.archive.failures


async def _crash(sim: Simulation, traffic: Traffic) -> None:
    traffic.forget()
    await sim.crash(power=sim.dice.random() < 0.6)
    if sim.dice.random() < 0.7:
        await sim.check_everything()
