"""Damage anywhere in a data directory or its archive: the right data, or a clear refusal, and never anything else.

Each round copies an image (image.py), damages one place of one file, starts a node on it, and reads everything. It is
compared with what is read from the sound image. A round is known by its seed, and a failure says it; to repeat one:

    ESKER_DAMAGE_SEED=7 ESKER_DAMAGE_ROUNDS=1 pytest -m soak tests/damage
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.damage.image import Refused, Told, build, read_everything

ROUNDS = 50
SOAK_ROUNDS = int(os.environ.get("ESKER_DAMAGE_ROUNDS", "1000"))
SOAK_SEED = int(os.environ.get("ESKER_DAMAGE_SEED", "1000"))
RANGE_BYTES_MAX = 4096
SLOW_EVERY = 10  # rounds between those with the readers that start a process
AGAIN_EVERY = 4  # rounds between those that start once more after the stop

IMAGES = ("killed", "closed")
LASTING = ("start", "records of", "range of", "jobs")  # readers of what a start does not change

# Kinds of files, each as likely as any other: there are few small ones, and they matter as much.
KINDS = {
    "identity": "data/[fn]o*",
    "segment": "data/journal/*.segment",
    "spare": "data/journal/*.spare",
    "table": "data/store/*.sst",
    "manifest of the store": "data/store/MANIFEST-*",
    "pointer of the store": "data/store/CURRENT",
    "other file of the store": "data/store/*[!t]",
    "part": "data/loads/*/*/*.arrow",
    "manifest of a load": "data/loads/*/*/commit.json",
    "owner of the archive": "archive/archive.json",
    "records": "archive/records/*/*/*.parquet",
    "events": "archive/events/*/*.parquet",
}


def flip_bit(data: bytearray, place: int, random: Random) -> str:
    bit = random.randrange(8)
    data[place] ^= 1 << bit
    return f"flipped bit {bit} of byte {place}"


def change_byte(data: bytearray, place: int, random: Random) -> str:
    data[place] ^= random.randrange(1, 256)
    return f"changed byte {place}"


def zero_range(data: bytearray, place: int, random: Random) -> str:
    end = min(len(data), place + random.randrange(1, RANGE_BYTES_MAX))
    data[place:end] = bytes(end - place)
    return f"zeroed bytes {place} to {end - 1}"


def scramble_range(data: bytearray, place: int, random: Random) -> str:
    end = min(len(data), place + random.randrange(1, RANGE_BYTES_MAX))
    data[place:end] = random.randbytes(end - place)
    return f"scrambled bytes {place} to {end - 1}"


def cut(data: bytearray, place: int, random: Random) -> str:
    del data[place:]
    return f"cut at byte {place}"


DAMAGES: list[Callable[[bytearray, int, Random], str]] = [
    flip_bit, flip_bit, change_byte, zero_range, scramble_range, cut,
]  # fmt: skip


@dataclass
class Images:
    folder: Path
    sound: dict[str, dict[str, Told]]  # what is read from each


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    folder = tmp_path_factory.mktemp("images")
    asyncio.run(build(folder / "running", *(folder / name for name in IMAGES)))
    for kind, pattern in KINDS.items():
        for name in IMAGES:
            assert list((folder / name).glob(pattern)), f"the image {name} has no {kind}"
    sound = {name: asyncio.run(read_copy(folder / name, folder / "copy", slow=True)) for name in IMAGES}
    for name, told in sound.items():
        refused = {reader: each for reader, each in told.items() if isinstance(each, Refused)}
        assert not refused, f"the sound image {name} was refused: {refused}"
        again = asyncio.run(read_copy(folder / name, folder / "copy", slow=True))
        differing = [reader for reader in told if again.get(reader) != told[reader]]
        assert not differing, f"two reads of the sound image {name} differ in {differing}"
    return Images(folder, sound)


async def read_copy(image: Path, copy: Path, slow: bool) -> dict[str, Told]:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(image, copy)
    return await read_everything(copy, slow)


def damaged(copy: Path, random: Random) -> str:
    """Damages one file; says what was done."""
    kind = random.choice(list(KINDS))
    paths = sorted(path for path in copy.glob(KINDS[kind]) if path.is_file() and path.stat().st_size)
    if not paths:
        return f"nothing: there is no {kind}"
    path = random.choice(paths)
    data = bytearray(path.read_bytes())
    # Much of a segment was never written: every other time the place is among what was.
    written = len(data.rstrip(b"\0")) if random.random() < 0.5 else len(data)
    done = random.choice(DAMAGES)(data, random.randrange(max(1, written)), random)
    path.write_bytes(data)
    return f"{kind} {path.relative_to(copy)} of {len(data)} bytes: {done}"


def run_round(images: Images, seed: int) -> Counter[str]:
    random = Random(seed)
    name = random.choice(IMAGES)
    copy = images.folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(images.folder / name, copy)
    done = damaged(copy, random)
    slow = seed % SLOW_EVERY == 0
    try:
        found = asyncio.run(read_everything(copy, slow))
        counts = judged(found, images.sound[name])
        if seed % AGAIN_EVERY == 0 and not isinstance(found["start"], Refused):
            # What a stop and another start make of it: nothing that was whole may be lost by that.
            again = asyncio.run(read_everything(copy, slow=False))
            lasting = {reader: told for reader, told in again.items() if reader.startswith(LASTING)}
            judged(lasting, images.sound[name], of="again ")
    except BaseException as error:
        error.add_note(f"seed {seed}, image {name}: {done}")
        raise
    return counts


def judged(found: dict[str, Told], sound: dict[str, Told], of: str = "") -> Counter[str]:
    counts: Counter[str] = Counter()
    for reader, told in found.items():
        if isinstance(told, Refused):
            assert told, f"{of}{reader} was refused without a word"
            counts["refused at the start" if reader == "start" else f"refused to read {reader}"] += 1
        else:
            assert told == sound[reader], f"{of}{reader}: not what was there, and no word of it"
            counts["right"] += 1
    return counts


@pytest.mark.timeout(300)
def test_damage_anywhere_gives_the_right_data_or_a_clear_refusal(images: Images) -> None:
    counts: Counter[str] = Counter()
    for seed in range(ROUNDS):
        counts += run_round(images, seed)
    assert counts["right"], "nothing could be read in any round"
    assert counts["refused at the start"], "no damage was seen at a start"


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_a_thousand_damages_give_the_right_data_or_a_clear_refusal(images: Images) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SOAK_SEED, SOAK_SEED + SOAK_ROUNDS):
        counts += run_round(images, seed)
    told = f"seeds {SOAK_SEED} to {SOAK_SEED + SOAK_ROUNDS - 1}: {dict(counts.most_common())}\n"
    sys.stdout.write(told)
