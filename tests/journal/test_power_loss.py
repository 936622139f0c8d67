"""Whatever the machine forgets when the power goes, nothing that was answered as synced is among it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from esker.journal.disk import make_directory
from esker.journal.file import FileJournal
from esker.testing.ram_disk import RamDisk
from tests.journal.answers import Answers, append_and_wait

DIRECTORY = Path("ram")
SEGMENT_BYTES = 4096
LIVES = 12


def batch(random: Random) -> bytes:
    return random.randbytes(random.choice([0, 1, 30, 200, 600, 1500, 3900, 6000]))


@pytest.mark.parametrize("in_order", [True, False], ids=["a prefix", "any sectors"])
@pytest.mark.parametrize("seed", range(40))
def test_all_that_was_synced_survives_and_positions_stay_whole(seed: int, in_order: bool) -> None:
    random = Random(seed)
    disk = RamDisk()
    accepted: list[bytes] = []  # accepted[n - 1] is what position n must hold, if it holds anything
    promised = 0
    for _ in range(LIVES):
        journal = FileJournal(DIRECTORY, segment_bytes=SEGMENT_BYTES, sync_interval_ms=3_600_000, disk=disk)
        last = journal.last_position
        assert promised <= last <= len(accepted)
        assert list(journal.read(journal.first_position - 1)) == [
            (position, accepted[position - 1]) for position in range(journal.first_position, last + 1)
        ]
        del accepted[last:]
        promised = max(promised, last)  # opening syncs what it found
        promised = _live(journal, accepted, promised, random)
        disk = disk.lose_power(random, in_order)
        journal.close()  # its disk is dead: it can do no more than end its threads


def _live(journal: FileJournal, accepted: list[bytes], promised: int, random: Random) -> int:
    """Appends for a while; returns the last position that was promised."""
    for _ in range(random.randint(1, 6)):
        answers = Answers()
        syncs = []
        for _ in range(random.randint(1, 12)):
            accepted.append(batch(random))
            syncs.append(random.random() < 0.3)
            answers.append(journal, accepted[-1], syncs[-1])
        if random.random() < 0.8:
            answers.wait()
        for (position, error), sync in zip(list(answers.order), syncs, strict=False):
            assert error is None
            if sync:
                promised = max(promised, position)
        if random.random() < 0.3:
            journal.retire(promised - random.randint(0, 5))
    return promised


@pytest.mark.parametrize("seed", range(10))
def test_what_opening_found_unsynced_after_a_kill_is_durable_from_then_on(seed: int) -> None:
    disk = RamDisk()
    killed = FileJournal(DIRECTORY, segment_bytes=SEGMENT_BYTES, sync_interval_ms=3_600_000, disk=disk)
    append_and_wait(killed, b"one", b"two", sync=False)
    opened = FileJournal(DIRECTORY, segment_bytes=SEGMENT_BYTES, disk=disk)  # the killed one never closed
    assert opened.last_position == 2
    after = disk.lose_power(Random(seed), in_order=True)
    for journal in (killed, opened):
        journal.close()
    journal = FileJournal(DIRECTORY, segment_bytes=SEGMENT_BYTES, disk=after)
    assert list(journal.read(0)) == [(1, b"one"), (2, b"two")]
    journal.close()


@pytest.mark.parametrize("done", range(4))
@pytest.mark.parametrize("seed", range(5))
def test_a_directory_that_was_made_outlives_a_power_loss_even_if_its_first_maker_was_killed(
    seed: int, done: int
) -> None:
    disk = RamDisk()
    steps = [Path("a"), Path("a/b"), Path("a/b/c")]
    if done:
        make_directory(disk, steps[done - 1].parent)
        disk.mkdir(steps[done - 1])  # the last it did: the entry is not synced
    make_directory(disk, steps[-1])
    fd = disk.open(steps[-1] / "file", create=True)
    disk.write(fd, b"kept", 0)
    disk.fdatasync(fd)
    disk.sync_directory(steps[-1])
    after = disk.lose_power(Random(seed))
    assert after.is_directory(steps[-1])
    assert after.read(steps[-1] / "file") == b"kept"
