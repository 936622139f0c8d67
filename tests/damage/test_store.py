"""Damage in the store's files is an error for every reader, never fewer keys."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from esker.errors import DataDirectoryError
from esker.store.interface import Puts
from esker.store.rocksdb import RocksStore

KEYS = 5_000
PUTS: Puts = [(b"j%08d" % number, b"value of %d " % number * 4) for number in range(KEYS)]
START, END = b"j", b"k"

Reader = Callable[[RocksStore], list[tuple[bytes, bytes]]]


def scanned(store: RocksStore) -> list[tuple[bytes, bytes]]:
    return list(store.scan(START, END))


def scanned_at_rest(store: RocksStore) -> list[tuple[bytes, bytes]]:
    return list(store.snapshot().scan(START, END))


def scanned_while_written(store: RocksStore) -> list[tuple[bytes, bytes]]:
    view = store.snapshot()
    store.write([(b"z", b"")])
    return list(view.scan(START, END))


def looked_up(store: RocksStore) -> list[tuple[bytes, bytes]]:
    return [(key, value) for key, _ in PUTS if (value := store.get(key)) is not None]


def looked_up_in_a_view(store: RocksStore) -> list[tuple[bytes, bytes]]:
    view = store.snapshot()
    return [(key, value) for key, _ in PUTS if (value := view.get(key)) is not None]


READERS: list[Reader] = [scanned, scanned_at_rest, scanned_while_written, looked_up, looked_up_in_a_view]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stores") / "sound"
    store = RocksStore(directory)
    for start in range(0, KEYS, 500):
        store.write(PUTS[start : start + 500])
    store.close()
    return directory


@pytest.mark.parametrize("read", READERS)
def test_a_flipped_bit_in_a_table_never_costs_a_reader_a_key(sound: Path, tmp_path: Path, read: Reader) -> None:
    refused = 0
    for seed in range(12):
        random = Random(seed)
        directory = tmp_path / str(seed)
        shutil.copytree(sound, directory)
        table = random.choice(sorted(directory.glob("*.sst")))
        data = bytearray(table.read_bytes())
        place = random.randrange(len(data))
        data[place] ^= 1 << random.randrange(8)
        table.write_bytes(data)
        found = read_or_refusal(directory, read)
        assert found == PUTS or isinstance(found, str), f"seed {seed}: byte {place} of {table.name}"
        if isinstance(found, str):
            assert "store" in found
            assert "backup" in found, "the message says what to do"
            refused += 1
    assert refused, "no flip was met by the reader: the test proves nothing"


def read_or_refusal(directory: Path, read: Reader) -> list[tuple[bytes, bytes]] | str:
    try:
        with contextlib.closing(RocksStore(directory)) as store:
            return read(store)
    except DataDirectoryError as error:
        return str(error)


@pytest.mark.parametrize("kind", [5, 6, 7, 8, 11])
def test_a_manifest_at_which_rocksdb_would_loop_for_ever_is_refused(sound: Path, tmp_path: Path, kind: int) -> None:
    shutil.copytree(sound, tmp_path / "store")
    (manifest,) = (tmp_path / "store").glob("MANIFEST-*")
    data = bytearray(manifest.read_bytes())
    second = 7 + int.from_bytes(data[4:6], "little")
    data[second + 6] = kind
    manifest.write_bytes(data)
    code = "import pathlib, sys; from esker.store.rocksdb import RocksStore; RocksStore(pathlib.Path(sys.argv[1]))"
    # In a process of its own: a loop inside RocksDB holds the interpreter, and no limit of a test would end it.
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "store")], capture_output=True, timeout=60)
    assert run.returncode == 1
    assert b"MANIFEST" in run.stderr
    assert b"restore the whole data directory" in run.stderr
