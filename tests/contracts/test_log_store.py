"""What a log promises through any store: it is loaded as it was saved, and cleans up after itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from esker.engine import limits
from esker.engine.commands import Append, DeleteRecords, DropTopic, NewRecord, PutTopic, Read, TopicState
from esker.engine.config import TopicConfig, TopicType
from esker.engine.machine import Machine
from esker.engine.replies import Records, TopicStatus
from esker.errors import InvariantBroken
from esker.store import keys
from esker.store.checkpoint import Checkpoint, load
from esker.store.cold import ColdStore
from esker.store.interface import WRITE_BYTES, WRITE_KEYS, Store
from esker.store.logs import stored_content
from esker.store.memory import MemoryStore
from esker.store.rocksdb import RocksStore

T = b"t"
NOW = 1_700_000_000_000


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else RocksStore(tmp_path / "store")
    yield made
    made.close()


def machine_on(store: Store) -> Machine:
    machine = Machine(Random(0), ColdStore(store))
    load(store, machine)
    return machine


def save(machine: Machine, store: Store) -> None:
    checkpoint = Checkpoint(machine, 0)
    for piece in [*checkpoint.slices(), checkpoint.last()]:
        assert store.write(piece.puts, piece.deletes, piece.ranges)
    store.persist()


def write(machine: Machine, *records: NewRecord, now: int = NOW) -> None:
    machine.handle(PutTopic(T, TopicConfig(type=TopicType.LOG)), now)
    machine.handle(Append(T, records), now)


def kinds(store: Store) -> str:
    return "".join(key[:1].decode() for key, _ in store.scan(b"\0", b"\xff"))


def test_a_log_is_loaded_as_it_was_saved(store: Store) -> None:
    machine = machine_on(store)
    for number in range(5):
        write(machine, *[NewRecord(b"%d" % number, b"tag%d" % number, b"n", b"{}")] * 100, now=NOW + number)
    machine.handle(DeleteRecords(T, 50), NOW + 9)
    machine.handle(DeleteRecords(T, tag=b"tag2"), NOW + 9)
    save(machine, store)
    again = machine_on(store)
    for command in (TopicState(T, touch=False), Read(T, 0, 1000), Read(T, 222, 3), DeleteRecords(T, tag=b"tag3")):
        assert again.handle(command, NOW + 10) == machine.handle(command, NOW + 10)


def test_a_start_reads_no_records(store: Store) -> None:
    machine = machine_on(store)
    write(machine, *[NewRecord(b"1" * 100)] * 1000)
    save(machine, store)
    again = machine_on(store)
    assert again.totals.hot_bytes == 0
    status = again.handle(TopicState(T), NOW)
    assert isinstance(status, TopicStatus)
    assert (status.count, status.bytes) == (1000, 100_000)


def test_only_blocks_that_changed_are_written_again(store: Store) -> None:
    machine = machine_on(store)
    write(machine, *[NewRecord(b"1")] * 1000)
    save(machine, store)
    write(machine, NewRecord(b"2"))
    puts = [key for piece in Checkpoint(machine, 0).slices() for key, _ in piece.puts]
    assert puts == [keys.block_key(b"x", 1, 0, 769), keys.block_key(b"r", 1, 0, 769)]


def test_marks_are_written_without_the_records(store: Store) -> None:
    machine = machine_on(store)
    write(machine, *[NewRecord(b"1", b"t")] * 300)
    save(machine, store)
    machine.handle(DeleteRecords(T, 10), NOW)
    puts = [key for piece in Checkpoint(machine, 0).slices() for key, _ in piece.puts]
    assert puts == [keys.block_key(b"x", 1, 0, 1)]


def test_slices_are_bounded_in_keys_and_bytes(store: Store) -> None:
    machine = machine_on(store)
    write(machine, *[NewRecord(b"1" * 700_000)] * 20)
    write(machine, *[NewRecord(b"1", b"t")] * 10_000)
    pieces = list(Checkpoint(machine, 0).slices())
    assert len(pieces) > 10
    for piece in pieces:
        assert len(piece.puts) <= WRITE_KEYS
        assert sum(len(value) for _, value in piece.puts) <= WRITE_BYTES + limits.RECORD_BYTES_MAX


def test_tags_are_kept_only_where_there_are_some(store: Store) -> None:
    machine = machine_on(store)
    write(machine, NewRecord(b"1"))
    save(machine, store)
    assert kinds(store) == "lmrtx"
    write(machine, NewRecord(b"1", b"tag"))
    save(machine, store)
    assert kinds(store) == "glmrtx"


def test_a_dropped_topic_leaves_nothing(store: Store) -> None:
    machine = machine_on(store)
    machine.handle(Append(T, [NewRecord(b"1", b"tag")], key=b"key"), NOW)
    save(machine, store)
    assert kinds(store) == "dglmrtx"
    machine.handle(DropTopic(T), NOW)
    save(machine, store)
    assert kinds(store) == "m"


def test_records_that_a_router_may_need_again_leave_one_checkpoint_later(store: Store) -> None:
    machine = machine_on(store)
    write(machine, *[NewRecord(b"1")] * 256)
    write(machine, NewRecord(b"2"))
    save(machine, store)
    machine.handle(DeleteRecords(T, 257), NOW)
    save(machine, store)
    assert kinds(store).count("r") == 2
    reply = machine_on(store).handle(Read(T), NOW)
    assert isinstance(reply, Records)
    assert [record.seq for record in reply.records] == [257]
    save(machine, store)
    assert kinds(store).count("r") == 1
    assert not machine.touched, "and then there is nothing left to do"


def test_missing_records_are_our_bug_and_say_which(store: Store) -> None:
    with pytest.raises(InvariantBroken, match="1/0/3"):
        stored_content(store, 1, 0, 3)
