"""A data directory and its archive with something of every kind in them, and everything that can be read of them.

`build` makes the images that the damage test copies. `read_everything` starts a node on a copy and reads all of it,
each reader on its own. What a reader gives must be comparable, and the same for every start of a sound copy. To cover
another kind of file: let `build` make one, name it in `KINDS` of test_model.py, and add what reads it to `READERS`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from esker.columns.eventfiles import events_of
from esker.columns.eventwish import EVERYTHING
from esker.engine import commands
from esker.engine.config import Durability, Pause, RouterOptions, TopicConfig, TopicType
from esker.engine.queues.snapshot import Selection
from esker.engine.replies import Leased, Record, Records, Tombstone, TopicStatus
from esker.errors import EskerError, Refusal
from esker.journal.disk import RealDisk
from esker.journal.frame import decode_segment_header
from esker.journal.segment import segment_paths
from esker.node.eventreading import EventsWish
from esker.node.loading import Order
from esker.node.planning import PlanWish
from esker.node.ranges import RangeWish
from esker.node.runtime import Node
from esker.node.settings import Settings
from esker.node.staging import Place
from esker.spark.cold import read_file
from esker.spark.plan import ColdFile
from tests.loads import stream

LOGS = (b"cold", b"copies", b"hot")
QUEUES = (b"jobs", b"loaded", b"by hand")
WAITING_LOAD, STAGED_LOAD = Place("waiting", 1), Place("staged", 1)
LOADED_ROWS = 40
PATIENCE_S = 30.0

Told = object
"""What a reader found: compared with what it found in the sound image."""


class Started(NamedTuple):
    """A node on a copy of an image, and the files of the archive that were there before it was started."""

    node: Node
    archived: frozenset[str]


Reader = Callable[[Started], Awaitable[Told]]


class Refused(str):
    """What a reader, or the start, was refused with."""

    __slots__ = ()


def settings_of(directory: Path) -> Settings:
    settings = Settings(data=str(directory / "data"))
    for name, text in {
        "archive": str(directory / "archive"), "archive_hot_blocks": "1", "archive_after_s": "0",
        "checkpoint_interval_s": "3600", "segment_size": "64kb", "hot_payloads": "0",
    }.items():  # fmt: skip
        settings.set(name, text)
    return settings


# -- making it


async def build(directory: Path, killed: Path, closed: Path) -> None:
    """Leaves in `killed` what a killed process leaves, and in `closed` what one that was stopped in order does."""
    node = Node(settings_of(directory))
    try:
        _topics(node)
        for wave in range(3):
            _traffic(node, wave)
            await _checkpoint(node)
        await _moved(node)
        await _staged(node)
        await _checkpoint(node)
        _traffic(node, 3)  # what the journal alone has
        await node._shard.settled()
        await _header_noted(node)
        shutil.copytree(directory, killed)
    finally:
        await node.close()
    shutil.copytree(directory, closed)


def _handle(node: Node, command: commands.Command) -> object:
    reply = node.handle(command)
    assert not isinstance(reply, Refusal), reply
    return reply


def _topics(node: Node) -> None:
    log = TopicConfig(type=TopicType.LOG, durability=Durability.FSYNC)
    queue = TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC, lease_ms=86_400_000, leases_durable=True)
    for name in LOGS:
        _handle(node, commands.PutTopic(name, log))
    for name in QUEUES:
        _handle(node, commands.PutTopic(name, queue))
    _handle(node, commands.PutRouter(b"to copies", b"cold", b"copies", RouterOptions(filter_tag=b"t1")))


def _traffic(node: Node, wave: int) -> None:
    for start in range(0, 600, 100):
        records = [
            commands.NewRecord(
                b'{"n":%d,"text":"%s"}' % (wave * 1000 + n, b"x" * (n % 90)), tag=b"t%d" % (n % 3),
                node=b"n%d" % (n % 2),
                meta=b'{"k":"v"}' if n % 7 == 0 else b"",
            )
            for n in range(start, start + 100)
        ]  # fmt: skip
        _handle(node, commands.Append(b"cold", records))
        node.commit()
    _handle(node, commands.Append(b"hot", [commands.NewRecord(b'"%d.%d"' % (wave, n)) for n in range(30)]))
    _handle(node, commands.DeleteRecords(b"cold", tag=b"t2", before_seq=wave * 300 + 50))
    jobs = [
        commands.NewJob(
            b"payload %d.%d " % (wave, n) * (n % 20 + 1), n % 5, ttl_ms=0,
            details=commands.Details(tag=b"t%d" % n, delay_ms=86_400_000 if n % 9 == 0 else 0),
        )
        for n in range(120)
    ]  # fmt: skip
    _handle(node, commands.Enqueue(b"jobs", jobs))
    leased = _handle(node, commands.Lease(b"jobs", 20, holder=b"worker"))
    assert isinstance(leased, Leased)
    _handle(node, commands.Ack([delivery.id for delivery in leased.deliveries[:10]]))


async def _checkpoint(node: Node) -> None:
    done = node._checkpointer.done
    node.checkpoint()
    await _until(lambda: node._checkpointer.done > done and not node._checkpointer.running)


async def _moved(node: Node) -> None:
    """Records and history are in the archive, and the store has let go of what is there."""
    archiving = node._archiving
    assert archiving is not None
    await _until(lambda: archiving.facts().get("files_written", 0) != 0)
    for _ in range(2):
        _handle(node, commands.Append(b"hot", [commands.NewRecord(b'"more"')]))
        await _checkpoint(node)
    await _until(lambda: archiving.history.segments > 0)


async def _staged(node: Node) -> None:
    """A load that was committed and waits for its topic, and one that was only staged."""
    _handle(node, commands.PauseTopic(b"loaded", Pause.IN))
    for place in (WAITING_LOAD, STAGED_LOAD):
        upload = await node.loads.open(place, "0-a1")
        rows = [b"%s row %d" % (place.load.encode(), n) for n in range(LOADED_ROWS)]
        await upload.write(stream({"value": pa.array(rows, pa.binary())}))
        await upload.keep(await upload.check(TopicType.QUEUE, None))
        await upload.drop()
    await node.loads.commit(_order(WAITING_LOAD, b"loaded"))


def _order(place: Place, topic: bytes) -> Order:
    return Order(
        place=place, parts=["0-a1"], topic=topic, kind=TopicType.QUEUE, create=False, config=None, value_format=None,
        share=1.0,
    )  # fmt: skip


async def _header_noted(node: Node) -> None:
    """The header of the last segment says that all is synced, as it does a second after the last sync."""

    def noted() -> bool:
        _, path = segment_paths(RealDisk(), Path(node.settings.data) / "journal")[-1]
        header = decode_segment_header(path.read_bytes(), path.name)
        return header is not None and header.synced == node._journal.last_position

    await _until(noted)


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110 it happens in another thread, which tells nothing
            await asyncio.sleep(0.01)


# -- reading it


async def read_everything(directory: Path, slow: bool) -> dict[str, Told]:
    """By reader, what it found or was refused. `slow`: also those that start a process."""
    archive = directory / "archive"
    there = frozenset(str(path.relative_to(archive)) for path in archive.rglob("*.parquet"))
    try:
        node = Node(settings_of(directory))
    except EskerError as error:
        return {"start": Refused(error)}
    found: dict[str, Told] = {"start": node.node_id}
    try:
        for name, reader in READERS.items():
            if slow or name not in SLOW:
                found[name] = await _read(reader, Started(node, there))
    finally:
        try:
            await node.close()
        except EskerError as error:
            found["close"] = Refused(error)
    return found


async def _read(reader: Reader, started: Started) -> Told:
    try:
        return await reader(started)
    except EskerError as error:
        return Refused(f"{type(error).__name__}: {error}")


async def _topics_told(started: Started) -> Told:
    node, machine = started.node, started.node._machine
    told = []
    for name in sorted(machine.names):
        status = _reply(node.handle(commands.TopicState(name, touch=False)))
        assert isinstance(status, TopicStatus)
        told.append((status.name, status.config, status.head_seq, status.earliest_seq, status.count, status.bytes))
    routers = [(each.name, each.source, each.dest, each.options) for each in machine.routers.numbers.values()]
    return told, routers, machine.names[b"loaded"].pause


def _reply(reply: object) -> object:
    if isinstance(reply, Refusal):
        raise reply
    return reply


def _records_of(topic: bytes) -> Reader:
    async def read(started: Started) -> Told:
        records: list[Record | Tombstone] = []
        position = 0
        while True:
            reply = _reply(await started.node.read(commands.Read(topic, position, 200)))
            assert isinstance(reply, Records)
            records += reply.records
            position = reply.next_from_seq
            if reply.tombstone is not None:
                records.append(reply.tombstone)
            if position >= reply.head_seq:
                return records

    return read


def _range_of(topic: bytes) -> Reader:
    async def read(started: Started) -> Told:
        data = b"".join([piece async for piece in started.node.read_range(RangeWish(topic)).pieces()])
        return pa.ipc.open_stream(data).read_all().to_pylist()

    return read


async def _jobs(started: Started) -> Told:
    snapshots = started.node.snapshots
    await snapshots.prepare(None)
    taken = snapshots.take(b"jobs", Selection(), None)
    rows: list[object] = []
    for number in range(taken.chunks):
        async with snapshots.chunk(taken.snapshot, number) as file:
            assert file is not None
            rows += pa.ipc.open_stream(file.read()).read_all().to_pylist()
    await snapshots.delete(taken.snapshot)
    return sorted(rows, key=repr)


async def _archived_files(started: Started) -> Told:
    """As Spark's tasks read them, by the plan."""
    plan = await started.node.plan(PlanWish(lambda _: True))
    assert plan.archive is not None
    rows: list[object] = []
    for topic in plan.topics:
        for part in topic.partitions:
            for file in part.files:
                if file.path not in started.archived:
                    continue  # this start has made it
                cold = ColdFile(file.path, file.first, file.last, tuple(file.dead), file.sha256)
                columns = ["seq", "ts", "node", "tag", "meta", "data"]
                for batch in read_file(plan.archive, cold, "seq", part.earliest, file.last + 1, columns):
                    rows += batch.to_pylist()
    return rows


async def _archived_events(started: Started) -> Told:
    archiving = started.node._archiving
    assert archiving is not None
    rows: list[object] = []
    for name in sorted(name for name in started.archived if name.startswith("events/")):
        data = archiving.store.get(name)
        assert data is not None
        rows.append((name, b"".join(events_of(name, data, EVERYTHING, 0, 1 << 60))))
    return rows


async def _history(started: Started) -> Told:
    """From the oldest position to the end of the image: this start has written no more than its own."""
    node = started.node
    wish = EventsWish(EVERYTHING, end=node.recovered.position + node.recovered.batches + 1)
    data = b"".join([piece async for piece in (await node.read_events(wish)).pieces()])
    return pa.ipc.open_stream(data).read_all().to_pylist()


async def _loads(started: Started) -> Told:
    """What was committed is published when its topic takes it; what was staged is committed now."""
    node = started.node
    _reply(node.handle(commands.PauseTopic(b"loaded", Pause.NONE)))
    told: list[object] = []
    for place, topic in ((WAITING_LOAD, b"loaded"), (STAGED_LOAD, b"by hand")):
        if place == STAGED_LOAD:
            await node.loads.commit(_order(place, topic))
        ended = node.loads.ended(place)
        if ended is not None:
            await asyncio.wait_for(ended.wait(), PATIENCE_S)
        state = await node.loads.status(place)
        if state.state == "failed":
            return Refused(state.message or "")
        jobs = _reply(await node.read(commands.Read(topic, 0, 1000)))
        assert isinstance(jobs, Records)
        told.append((state.state, state.rows, [record.data for record in jobs.records]))
    return told


READERS: dict[str, Reader] = {
    "topics": _topics_told,
    **{f"records of {topic.decode()}": _records_of(topic) for topic in (*LOGS, b"jobs")},
    **{f"range of {topic.decode()}": _range_of(topic) for topic in LOGS},
    "jobs": _jobs,
    "archived files": _archived_files,
    "archived events": _archived_events,
    "history": _history,
    "loads": _loads,  # last: it changes something
}
SLOW = ("history",)
