"""kill -9 in the middle of a load over HTTP, again and again, on one data directory."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.crash.process import NodeProcess
from tests.crash.topics_load import World

KILLS = 20


@pytest.mark.timeout(600)
def test_every_class_keeps_its_promise_whenever_the_node_is_killed(tmp_path: Path) -> None:
    dice = random.Random(3)
    world = World(dice)
    # Small segments and frequent checkpoints, so that kills hit rolls, slices, flushes and retirements too.
    node = NodeProcess(
        tmp_path / "data", "--set", "segment_size=256kb", "--set", "checkpoint_interval_s=1",
        "--set", "checkpoint_after=20kb",
    )  # fmt: skip
    for round_number in range(KILLS):
        with node:
            if round_number == 0:
                asyncio.run(world.make(node.http_port))
            asyncio.run(world.check(node.http_port))
            asyncio.run(_load_then_kill(node, world, dice.uniform(0.05, 0.35)))
    with node:
        asyncio.run(world.check(node.http_port))
        assert node.stop() == 0
    with node:
        asyncio.run(world.check(node.http_port))
    assert world.done > 20 * KILLS, "the load did too little for the test to mean anything"
    for log in (*world.logs.values(), world.pruned, world.jobs):
        assert len(log.acked) > KILLS, f"{log.name} was hardly written to"
    assert world.pruned.gone
    assert world.jobs.gone


async def _load_then_kill(node: NodeProcess, world: World, after_s: float) -> None:
    load = asyncio.create_task(world.run(node.http_port))
    await asyncio.wait({load}, timeout=after_s)
    assert not load.done(), f"the load ended by itself: {load.exception()}"
    node.kill()
    await load
