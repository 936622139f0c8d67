"""What every store adapter promises (see esker.store.interface), held on each of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esker.engine.machine import Machine
from esker.errors import DataDirectoryError, InvariantBroken
from esker.store import keys
from esker.store.checkpoint import load
from esker.store.interface import Store
from esker.store.jobs import cold_payload, cold_payloads
from esker.store.memory import MemoryStore
from esker.store.rocksdb import RocksStore


class Subject:
    """A store that can be closed and opened again."""

    def __init__(self, store: Store, again: Callable[[Store], Store]) -> None:
        self.store = store
        self._again = again

    def restart(self) -> Store:
        self.store = self._again(self.store)
        return self.store

    def lives(self) -> Iterator[Store]:
        """The store as it is, and as it is after a restart."""
        yield self.store
        yield self.restart()


def memory_subject(directory: Path) -> Subject:
    def again(store: Store) -> Store:
        store.close()
        assert isinstance(store, MemoryStore)
        store.crash()  # what was closed in order survives it
        return store

    return Subject(MemoryStore(), again)


def rocks_subject(directory: Path) -> Subject:
    def again(store: Store) -> Store:
        store.close()
        return RocksStore(directory)

    return Subject(RocksStore(directory), again)


@pytest.fixture(params=[memory_subject, rocks_subject], ids=["memory", "rocksdb"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    build: Callable[[Path], Subject] = request.param
    built = build(tmp_path / "store")
    yield built
    built.store.close()


def everything(store: Store) -> list[tuple[bytes, bytes]]:
    return list(store.scan(b"", b"\xff" * 40))


def test_a_new_store_is_empty(subject: Subject) -> None:
    assert subject.store.get(b"k") is None
    assert everything(subject.store) == []


def test_a_write_is_visible_at_once_and_survives_a_restart(subject: Subject) -> None:
    subject.store.write([(b"b", b"2"), (b"a", b"1"), (b"c", b"")])
    for store in subject.lives():
        assert everything(store) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"")]
        assert store.get(b"c") == b""


def test_ranges_go_first_then_deletes_then_puts(subject: Subject) -> None:
    store = subject.store
    store.write([(b"%d" % number, b"old") for number in range(6)])
    store.write([(b"1", b"new"), (b"4", b"new")], [b"4", b"5", b"nowhere"], [(b"0", b"3"), (b"7", b"9")])
    for each in subject.lives():
        assert everything(each) == [(b"1", b"new"), (b"3", b"old"), (b"4", b"new")]


def test_a_range_holds_its_start_and_not_its_end(subject: Subject) -> None:
    subject.store.write([(key, b"") for key in (b"a", b"b", b"b\0", b"c", b"d")])
    subject.store.write([], [], [(b"b", b"c"), (b"d", b"d")])
    assert [key for key, _ in everything(subject.store)] == [b"a", b"c", b"d"]


def test_the_last_put_of_a_key_counts(subject: Subject) -> None:
    subject.store.write([(b"k", b"1"), (b"k", b"2")])
    subject.store.write([(b"k", b"3")])
    assert everything(subject.restart()) == [(b"k", b"3")]


def test_a_snapshot_stays_as_it_was_whatever_is_written(subject: Subject) -> None:
    store = subject.store
    store.write([(b"a", b"1"), (b"b", b"2")])
    before = store.snapshot()
    store.write([(b"a", b"changed"), (b"c", b"3")], [b"b"])
    store.persist()
    after = store.snapshot()
    with ThreadPoolExecutor(1) as thread:
        seen = [thread.submit(view.get, key).result() for view in (before, after) for key in (b"a", b"b", b"c")]
        scanned = thread.submit(lambda: list(before.scan(b"a", b"c"))).result()
    assert seen == [b"1", b"2", None, b"changed", None, b"3"]
    assert scanned == [(b"a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize("seqs", [[], [5], [1, 2, 3], list(range(1, 101)), [*range(1, 40), 50, 7, *range(60, 90)]])
def test_payloads_of_many_jobs_come_in_the_order_asked_for(subject: Subject, seqs: list[int]) -> None:
    bodies = [(keys.body_key(7, 1, seq), b"%d" % seq) for seq in range(1, 101)]
    subject.store.write(bodies[:50])
    subject.store.write(bodies[50:])
    assert cold_payloads(subject.store.snapshot(), 7, 1, seqs) == [b"%d" % seq for seq in seqs]


@pytest.mark.parametrize("missing", [1, 20, 40])
def test_a_payload_that_is_missing_among_many_is_named(subject: Subject, missing: int) -> None:
    subject.store.write([(keys.body_key(7, 1, seq), b"x") for seq in range(1, 41) if seq != missing])
    with pytest.raises(InvariantBroken, match=f"7/1/{missing} "):
        cold_payloads(subject.store.snapshot(), 7, 1, range(1, 41))


def test_an_empty_write_is_fine(subject: Subject) -> None:
    subject.store.write([])
    subject.store.persist()
    assert everything(subject.restart()) == []


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (b"", b"\xff", [b"a", b"b", b"b\0", b"c"]),
        (b"b", b"c", [b"b", b"b\0"]),
        (b"b\0", b"b\0\0", [b"b\0"]),
        (b"bb", b"z", [b"c"]),
        (b"c", b"c", []),
        (b"c", b"a", []),
        (b"x", b"z", []),
    ],
)
def test_a_scan_holds_its_start_and_not_its_end(subject: Subject, start: bytes, end: bytes, found: list[bytes]) -> None:
    subject.store.write([(key, key) for key in (b"c", b"a", b"b\0", b"b")])
    for store in subject.lives():
        assert list(store.scan(start, end)) == [(key, key) for key in found]


def test_scans_run_inside_one_another(subject: Subject) -> None:
    store = subject.store
    store.write([(b"%c%03d" % (letter, number), b"v" * 100) for letter in b"abc" for number in range(300)])
    store = subject.restart()
    seen = []
    for outer, _ in store.scan(b"a", b"b"):
        inner = [key for key, _ in store.scan(b"b", b"c")]
        assert len(inner) == 300
        seen.append((outer, next(store.scan(b"c", b"d"))[0]))
    assert seen == [(b"a%03d" % number, b"c000") for number in range(300)]


def test_values_of_any_size_come_back(subject: Subject) -> None:
    dice = Random(1)
    values = {b"%08d" % size: dice.randbytes(size) for size in (0, 1, 4095, 4096, 70_000, 1 << 20, 5 << 20)}
    subject.store.write(list(values.items()))
    store = subject.restart()
    assert dict(store.scan(b"0", b"9")) == values
    assert all(store.get(key) == value for key, value in values.items())


def test_a_write_that_would_wait_writes_nothing_and_goes_through_after_persisting(subject: Subject) -> None:
    dice = Random(2)
    values = {b"%03d" % number: dice.randbytes(1 << 20) for number in range(60)}
    for key, value in values.items():
        while not subject.store.write([(key, value)]):
            assert subject.store.get(key) is None
            subject.store.persist()
        assert subject.store.get(key) == value
    assert dict(subject.restart().scan(b"0", b"9")) == values


def test_what_was_removed_stays_removed_after_persisting(subject: Subject) -> None:
    store = subject.store
    store.write([(b"j%03d" % number, b"x") for number in range(100)])
    store.persist()
    store.write([], [b"j000"], [(b"j050", b"j100")])
    store.persist()
    store.write([(b"j060", b"again")])
    found = everything(subject.restart())
    assert [key for key, _ in found] == [b"j%03d" % number for number in (*range(1, 50), 60)]
    assert found[-1][1] == b"again"


small = st.binary(min_size=1, max_size=2)
writes = st.lists(
    st.tuples(
        st.lists(st.tuples(small, st.binary(max_size=3)), max_size=4),
        st.lists(small, max_size=3),
        st.lists(st.tuples(small, small).map(lambda pair: (min(pair), max(pair))), max_size=2),
    ),
    max_size=12,
)


@given(history=writes, start=small, end=small)
@settings(max_examples=60)
def test_both_stores_hold_what_a_dict_would(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[tuple[list[tuple[bytes, bytes]], list[bytes], list[tuple[bytes, bytes]]]],
    start: bytes,
    end: bytes,
) -> None:
    stores: list[Store] = [MemoryStore(), RocksStore(tmp_path_factory.mktemp("rocks"))]
    truth: dict[bytes, bytes] = {}
    for puts, deletes, ranges in history:
        for low, high in ranges:
            truth = {key: value for key, value in truth.items() if not low <= key < high}
        truth = {key: value for key, value in truth.items() if key not in deletes} | dict(puts)
        for store in stores:
            store.write(puts, deletes, ranges)
    for store in stores:
        assert everything(store) == sorted(truth.items())
        assert list(store.scan(start, end)) == sorted(each for each in truth.items() if start <= each[0] < end)
        store.close()


def test_the_memory_store_plays_a_crash() -> None:
    store = MemoryStore()
    store.write([(b"kept", b"1"), (b"gone", b"1")])
    store.persist()
    store.write([(b"kept", b"2"), (b"lost", b"2")], [b"gone"])
    store.crash()
    assert everything(store) == [(b"gone", b"1"), (b"kept", b"1")]


KILLED = """
import os, signal, sys
from pathlib import Path
from esker.store.rocksdb import RocksStore

store = RocksStore(Path(sys.argv[1]))
for number in range(300):
    store.write([(b"a%04d" % number, b"x" * 50), (b"z%04d" % number, b"y" * 50)], [b"a%04d" % (number - 100)])
    if number == 199:
        store.persist()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_a_prefix_of_the_writes_and_all_that_was_persisted(tmp_path: Path) -> None:
    place = tmp_path / "store"
    done = subprocess.run([sys.executable, "-c", KILLED, str(place)], env=os.environ, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    store = RocksStore(place)
    ends = [int(key[1:]) for key, _ in store.scan(b"z", b"{")]
    assert ends == list(range(len(ends))), "a hole in the writes"
    assert len(ends) >= 200, "what was persisted is gone"
    starts = [int(key[1:]) for key, _ in store.scan(b"a", b"b")]
    assert starts == list(range(len(ends) - 100, len(ends))), "half of a write was kept"
    store.close()


def test_a_directory_that_is_no_store_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    with pytest.raises(DataDirectoryError, match="file"):
        RocksStore(file)


def test_a_store_is_opened_by_one_at_a_time(tmp_path: Path) -> None:
    first = RocksStore(tmp_path)
    with pytest.raises(DataDirectoryError, match="cannot open the store"):
        RocksStore(tmp_path)
    first.close()


@pytest.mark.parametrize("rest", [[7, 1, 0], ["a", {"b": 2}], []])
def test_a_newer_format_is_refused_and_left_alone(subject: Subject, rest: list[object]) -> None:
    newer = msgspec.msgpack.encode([keys.FORMAT + 1, *rest])
    subject.store.write([(keys.META, newer), (keys.topic_key(1), b"\xc1 unreadable")])
    before = everything(subject.restart())
    machine = Machine(Random(0))
    with pytest.raises(DataDirectoryError, match=f"format {keys.FORMAT + 1}.*nothing was changed"):
        load(subject.store, machine)
    assert everything(subject.restart()) == before
    assert machine.topics == {}


def test_a_missing_payload_is_our_bug_and_says_which(subject: Subject) -> None:
    with pytest.raises(InvariantBroken, match="1/2/3"):
        cold_payload(subject.store, 1, 2, 3)


def test_keys_sort_by_topic_partition_and_seq_and_ranges_hold_exactly_their_own() -> None:
    places = [(number, index, seq) for number in (1, 255, 256) for index in (0, 1, 1023) for seq in (1, 256, 1 << 45)]
    stored = [keys.job_key(*place) for place in places]
    assert stored == sorted(stored)
    start, end = keys.partition_range(b"j", 255, 1)
    inside = [place for place, key in zip(places, stored, strict=True) if start <= key < end]
    assert inside == [(255, 1, 1), (255, 1, 256), (255, 1, 1 << 45)]
    (start, end), _ = keys.jobs_below(255, 1, 256)
    assert [place for place, key in zip(places, stored, strict=True) if start <= key < end] == [(255, 1, 1)]
    bounds = keys.topic_ranges(255)
    mine = [place for place, key in zip(places, stored, strict=True) if any(low <= key < high for low, high in bounds)]
    assert mine == [place for place in places if place[0] == 255]
