"""The files of the history hold every event of the segments that went, once and in order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from esker.archive.history import events_files
from esker.archive.interface import ArchiveStore
from esker.archive.local import LocalArchive
from esker.columns.eventnames import Names
from esker.columns.eventwish import kind_of
from esker.engine import commands, events
from esker.engine.config import RouterOptions, TopicConfig, TopicType
from esker.engine.ids import from_ulid, place
from esker.engine.limits import DAY_MS
from esker.engine.replies import Leased
from esker.errors import ArchiveError
from esker.journal.file import FileJournal
from esker.node.eventprocess import EventProcess
from esker.node.history import History
from esker.testing.engine import START_MS, Engine

Row = dict[str, object]


def _rows(folder: Path) -> list[Row]:
    found: list[Row] = []
    for path in sorted((folder / "events").rglob("*.parquet"), key=lambda path: path.name):
        found += pq.ParquetFile(path).read().to_pylist()
    return found


def _history() -> list[tuple[int, bytes]]:
    """A short life of two logs, a router and a queue, as the journal keeps it."""
    engine = Engine()
    log = TopicConfig(type=TopicType.LOG)
    engine.handle(commands.PutTopic(b"a", log))
    engine.handle(commands.PutTopic(b"b", log))
    engine.handle(commands.PutRouter(b"a->b", b"a", b"b", RouterOptions()))
    records = [commands.NewRecord(b"%d" % n, tag=b"t%d" % (n % 2), node=b"w") for n in range(4)]
    engine.handle(commands.Append(b"a", records, key=b"once"))
    engine.handle(commands.Forward())
    engine.handle(commands.DeleteRecords(b"a", tag=b"t1"))
    engine.handle(commands.DeleteRecords(b"a", before_seq=2))
    engine.handle(commands.Enqueue(b"q", [commands.NewJob(b"z", priority=-5)]))
    engine.handle(commands.EnqueueAlike(b"q", [b"x", b"y"], 1000, 0))
    leased = engine.handle(commands.Lease(b"q", 1, holder=b"worker"))
    assert isinstance(leased, Leased)
    engine.handle(commands.Nack([leased.deliveries[0].id], [leased.deliveries[0].token]))
    engine.advance(DAY_MS)
    engine.handle(commands.DropTopic(b"a"))
    return list(engine._journal.read(0))


def test_every_event_is_there_once_and_in_order(tmp_path: Path) -> None:
    batches = _history()
    archive = LocalArchive(tmp_path)
    for file in events_files(batches, Names()):
        archive.put(file.name, file.data)
    rows = _rows(tmp_path)
    assert [(row["position"], row["ordinal"]) for row in rows] == sorted(
        {(row["position"], row["ordinal"]) for row in rows}
    )
    wanted = []
    for position, batch in batches:
        for event in events.decode_batch(batch):
            wanted += [(position, kind_of(type(event)))] * _rows_for(event)
    assert [(row["position"], row["kind"]) for row in rows] == wanted
    days = sorted(path.name for path in (tmp_path / "events").iterdir())
    assert days == ["day=2023-11-14", "day=2023-11-15"]


def _rows_for(event: events.Event) -> int:
    match event:
        case events.RecordsAppended():
            return len(event.records)
        case events.JobsEnqueued():
            return len(event.payloads)
        case events.JobsLeased() | events.JobsAcked():
            return len(event.seqs)
        case events.RecordsDeleted():
            return len(event.runs) // 2 + (event.below > 0)
        case events.RecordsForwarded():
            return sum(event.runs[1::2]) or 1
        case _:
            return 1


def test_rows_say_what_happened_to_whom(tmp_path: Path) -> None:
    archive = LocalArchive(tmp_path)
    for file in events_files(_history(), Names()):
        archive.put(file.name, file.data)
    by_kind: dict[object, list[Row]] = {}
    for row in _rows(tmp_path):
        by_kind.setdefault(row["kind"], []).append(row)
    appended = by_kind["RecordsAppended"]
    assert [(row["topic"], row["seq"], row["tag"], row["node"]) for row in appended] == [
        ("a", 1, "t0", "w"), ("a", 2, "t1", "w"), ("a", 3, "t0", "w"), ("a", 4, "t1", "w"),
    ]  # fmt: skip
    assert [(row["topic"], row["seq"], row["reason"]) for row in by_kind["RecordsForwarded"]] == [
        ("b", seq, "a->b") for seq in (1, 2, 3, 4)
    ]
    deleted = by_kind["RecordsDeleted"]
    assert [(row["seq"], row["reason"]) for row in deleted] == [(2, "match"), (4, "match"), (2, "below")]
    (enqueued,) = by_kind["Enqueued"]
    (leased,) = by_kind["JobLeased"]
    assert [row["seq"] for row in by_kind["JobsEnqueued"]] == [2, 3]
    assert enqueued["message_id"] == leased["message_id"]
    assert place(from_ulid(str(enqueued["message_id"]))).created_ms == START_MS
    assert (enqueued["priority"], leased["attempts"], leased["node"]) == (-5, 1, "worker")
    assert int(str(leased["lease"]), 16) > 0
    (returned,) = by_kind["JobReturned"]
    assert returned["reason"] == "nacked"
    assert [row["topic"] for row in by_kind["TopicDeleted"]] == ["a"]


def test_a_name_that_nobody_knows_is_its_number(tmp_path: Path) -> None:
    batch = events.encode_batch([events.JobAcked(42, 0, 1, START_MS)])
    archive = LocalArchive(tmp_path)
    for file in events_files([(9, batch)], Names()):
        archive.put(file.name, file.data)
    (row,) = _rows(tmp_path)
    assert (row["topic"], row["topic_number"], row["message_id"]) == ("42", 42, None)


class Unsteady(LocalArchive):
    """Refuses as often as it is told."""

    def __init__(self, folder: Path, failures: int) -> None:
        super().__init__(folder)
        self.failures = failures

    def put(self, name: str, data: bytes) -> None:
        if self.failures:
            self.failures -= 1
            raise ArchiveError("no connection")
        super().put(name, data)


@pytest.fixture
def process() -> Iterator[EventProcess]:
    worker = EventProcess()
    yield worker
    worker.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esker.node.history._RETRY_S", 0.0)


def _fill(journal: FileJournal, count: int) -> None:
    for n in range(count):
        done = threading.Event()
        batch = [events.JobAcked(1, 0, n, START_MS + n), events.JobAcked(2, 0, n, START_MS + n)]
        journal.append(events.encode_batch(batch), True, lambda error, done=done: done.set())  # type: ignore[misc]
        assert done.wait(10)


def _settled(journal: FileJournal, folder: Path) -> Iterator[int]:
    """Asks until only the newest segment is left."""
    while len(list(folder.glob("*.segment"))) > 1:
        journal.settle()
        yield 1


@pytest.mark.usefixtures("impatient")
def test_a_segment_goes_only_after_its_events_are_in_the_archive(tmp_path: Path, process: EventProcess) -> None:
    archive: ArchiveStore = Unsteady(tmp_path / "archive", failures=3)
    history = History(archive, process)
    journal = FileJournal(tmp_path / "journal", segment_bytes=1024, on_retire=history.may_go)
    _fill(journal, 100)
    segments = len(list((tmp_path / "journal").glob("*.segment")))
    journal.retire(100)
    for _ in _settled(journal, tmp_path / "journal"):
        there = {int(str(row["position"])) for row in _rows(tmp_path / "archive")}
        left = min(int(path.stem) for path in (tmp_path / "journal").glob("*.segment"))
        assert set(range(1, left)) <= there
    history.close()
    journal.close()
    rows = _rows(tmp_path / "archive")
    last = int(max((tmp_path / "journal").glob("*.segment")).stem)
    assert [(row["position"], row["ordinal"]) for row in rows] == [(p, o) for p in range(1, last) for o in (0, 1)]
    assert history.segments == segments - 1


def test_what_a_stop_cut_short_is_done_by_the_next_start(tmp_path: Path, process: EventProcess) -> None:
    history = History(Unsteady(tmp_path / "archive", failures=1), process)
    journal = FileJournal(tmp_path / "journal", segment_bytes=1024, on_retire=history.may_go)
    _fill(journal, 50)
    journal.retire(50)
    history.close()
    journal.close()
    again = History(LocalArchive(tmp_path / "archive"), process)
    journal = FileJournal(tmp_path / "journal", segment_bytes=1024, on_retire=again.may_go)
    journal.retire(50)
    for _ in _settled(journal, tmp_path / "journal"):
        continue
    again.close()
    journal.close()
    positions = [row["position"] for row in _rows(tmp_path / "archive")]
    assert positions == sorted([*range(1, len(positions) // 2 + 1)] * 2)


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_dies_again_and_again_loses_no_event(tmp_path: Path, process: EventProcess) -> None:
    history = History(LocalArchive(tmp_path / "archive"), process)
    journal = FileJournal(tmp_path / "journal", segment_bytes=1024, on_retire=history.may_go)
    _fill(journal, 40)
    journal.retire(40)
    killed: set[int] = set()
    for _ in _settled(journal, tmp_path / "journal"):
        pid = process.pid
        if pid is not None and pid not in killed and len(killed) < 3:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    history.close()
    journal.close()
    assert process.started == len(killed) + 1 > 1
    last = int(max((tmp_path / "journal").glob("*.segment")).stem)
    assert [row["position"] for row in _rows(tmp_path / "archive")] == sorted([*range(1, last)] * 2)


def test_files_leave_no_hole_where_batches_are_empty(tmp_path: Path) -> None:
    empty = events.encode_batch([])
    ack = events.encode_batch([events.JobAcked(1, 0, 1, START_MS)])
    later = events.encode_batch([events.JobAcked(1, 0, 2, START_MS + DAY_MS)])
    batches = [(5, empty), (6, ack), (7, empty), (8, later), (9, empty)]
    ranges = [file.name.rpartition("/")[2].removesuffix(".parquet") for file in events_files(batches, Names())]
    assert [tuple(map(int, each.split("-"))) for each in ranges] == [(5, 7), (8, 9)]
    (alone,) = events_files([(3, empty), (4, empty)], Names())
    assert alone.name.endswith(f"{3:020d}-{4:020d}.parquet")
