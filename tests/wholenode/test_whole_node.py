"""A whole node in virtual time against what it has acknowledged: nothing promised is lost, nothing else is served.

The real shard, checkpointer, journal, cooling, archive and recovery run on a disk in memory, with bounds so small that
every slice, every cooling and every reload happens hundreds of times, under commands of all kinds and crashes anywhere.
A failure names its seed; `play(seed, steps, trace=True)` plays it again and tells the last commands.

SOAK_MINUTES sets for how long the soak goes on (60), SOAK_SEED where it starts (1000).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.wholenode.playing import play

SEEDS = range(1, 41)
STEPS = 300  # of each seed: about a second
SOAK_STEPS = 600

# What must have happened for a run to be worth something.
WANTED = (
    "blocks cooled", "blocks read back", "payloads cooled", "payloads read back", "slices written",
    "tails taken back to be written on", "copies of routers made", "copies of routers made again",
    "crashes: power", "crashes: process", "crashes in the middle of a checkpoint", "orderly restarts",
    "files written to the archive", "files removed from the archive", "reads from the archive",
    "shards stopped by a failing disk", "stalls of the store", "failures of the store", "snapshots", "logs checked",
    "jobs checked",
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_is_there_whatever_happens_to_the_node(seed: int) -> None:
    play(seed, STEPS)


@pytest.mark.parametrize("seed", range(101, 104))
def test_the_same_with_the_store_on_disk(seed: int, tmp_path: Path) -> None:
    play(seed, 200, directory=tmp_path)


def test_a_seed_plays_the_same_each_time() -> None:
    one, other = play(7, 120, trace=True), play(7, 120, trace=True)
    assert one.trace == other.trace
    assert one.counts == other.counts


def test_a_history_meets_every_path_that_it_is_made_for() -> None:
    counts: Counter[str] = Counter()
    for seed in range(301, 306):
        counts.update(play(seed, STEPS).counts)
    assert not [what for what in WANTED if not counts[what]], counts


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_soak() -> None:
    until = time.monotonic() + 60 * float(os.environ.get("SOAK_MINUTES", "60"))
    seed = first = int(os.environ.get("SOAK_SEED", "1000"))
    counts: Counter[str] = Counter()
    while time.monotonic() < until:
        counts.update(play(seed, SOAK_STEPS).counts)
        seed += 1
    report = "\n".join(f"{count:10d} {what}" for what, count in sorted(counts.items()))
    print(f"\nseeds {first} to {seed - 1}:\n{report}")  # noqa: T201 shown with -s, and by a failure
    assert not [what for what in WANTED if not counts[what]], report
