"""A node that lives and dies again and again in virtual time, under traffic, and is compared with what it promised.

One seed is one history. `run` plays it step by step; the steps and their order, the disk's and the threads' delays, the
moments of crashes and what they leave on the disk all come from the seed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from esker.engine.commands import Command, Read, ScanJobs
from esker.engine.config import Durability
from esker.engine.logs.partition import LogPartition
from esker.engine.machine import Machine
from esker.engine.queues.snapshot import QueueView
from esker.engine.replies import Jobs, JobView, Record, Records, Reply
from esker.errors import Refusal, ShardStopped
from esker.node.settings import Settings
from esker.store.jobs import cold_payload
from esker.store.logs import stored_content, stored_outline
from esker.testing.faults import FaultyDisk
from esker.testing.ram_disk import RamDisk
from esker.testing.virtual_loop import VirtualLoop
from esker.testing.virtual_node import VirtualNode
from tests.engine.audit import audit
from tests.engine.logs.audit import audit_logs
from tests.wholenode.adapters import KilledRocks, MemoryArchive, StallingStore
from tests.wholenode.dictionary import Dictionary, Log, Step
from tests.wholenode.reference import Reference, assert_same
from tests.wholenode.topics import LETTERS_LOG, WAITS_S


class Simulation:
    """`counts` tells how often what happened, so that one sees what a run was worth."""

    def __init__(self, seed: int, trace: bool = False, directory: Path | None = None) -> None:
        """`directory`: the store is RocksDB there, else it is in memory."""
        self.dice = Random(seed)
        self.counts: Counter[str] = Counter()
        self.trace: list[str] | None = [] if trace else None
        self.loop = VirtualLoop(Random(self.dice.getrandbits(64)))
        self.settings = Settings(
            hot_payloads=self.dice.choice((0, 2_000, 8_000, 25_000)),
            memory_limit=self.dice.choice((150_000, 400_000)),
            checkpoint_after=self.dice.choice((1_000, 4_000, 20_000)),
            checkpoint_interval_s=self.dice.choice((1, 3)),
            segment_size=self.dice.choice((4096, 20_000)),
            sync_interval_ms=self.dice.choice((5, 100)),
            archive_hot_blocks=self.dice.choice((1, 2, 4)),
            archive_after_s=self.dice.choice((0, 1, 4)),
        )
        self.ram = RamDisk()
        self.disk = FaultyDisk(self.ram)
        self.store: StallingStore | KilledRocks = StallingStore(Random(self.dice.getrandbits(64)))
        if directory is not None:
            self.store = KilledRocks(directory / "1")
        self.archive = MemoryArchive(Random(self.dice.getrandbits(64))) if self.dice.random() < 0.8 else None
        self.dictionary = Dictionary()
        self.reference = Reference()
        self.promised = 0  # what clients were told lies at or before this position
        self.written = 0  # the last position that the journal has said yes to
        self.lives = 0
        self.failure: BaseException | None = None  # of something that ran beside the steps
        self.faulted = False  # the disk was told to fail, so the shard may stop
        self.seen: dict[tuple[int, int], Record] = {}  # every record that was ever shown, by topic and seq

    # -- lives

    def start(self) -> None:
        self.lives += 1
        self.node = VirtualNode(
            self.settings, self.disk, self.store, self.archive, self.dice, self.reference.appended, self._written
        )

    def _written(self, position: int) -> None:
        self.written = position

    def note(self, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.loop.time():.4f} {what}")

    async def crash(self, power: bool) -> None:
        """`power`: what was not synced may be lost. Else only what was not yet written."""
        checkpointing = self.node.checkpointer.running
        self.counts["crashes: power" if power else "crashes: process"] += 1
        self.counts["crashes in the middle of a checkpoint"] += checkpointing
        self.note(f"crash power={power}")
        in_order = self.dice.random() < 0.5
        ram = self.ram.lose_power(self.dice, in_order) if power else self.ram.lose_process()
        self.store.dead = True
        await self.node.kill()
        self.ram, self.disk, self.faulted = ram, FaultyDisk(ram), False
        self.store = self.store.after_crash()
        self._come_back(self.promised if power else max(self.promised, self.written))

    async def restart(self) -> None:
        self.counts["orderly restarts"] += 1
        self.note("restart")
        await self.node.close()
        assert self.node.shard.stopped is None, self.node.shard.stopped
        position = self.node.journal.last_position
        saved = self.node.checkpointer.last_position == position  # else the store has failed the last checkpoint
        if saved:
            self.reference.ended(position)
        self.store = self.store.after_end()
        self._come_back(position, orderly=saved)

    def _come_back(self, at_least: int, orderly: bool = False) -> None:
        self.start()
        position = self.node.recovered_position
        assert position >= at_least, f"the journal ends at {position}; up to {at_least} was promised"
        self.reference.began(position)
        self.promised = self.written = position
        if not orderly:
            self.dictionary.restarted(position)
        else:
            self.dictionary.restarted(1 << 62)
        state = self.dictionary.now
        machine = self.node.machine
        for name, mine in state.logs.items():
            self._settle_log(name, mine)
        self.dictionary.settled()
        audit(machine)
        audit_logs_at_hand(machine)
        assert_same(self.reference.machine(), machine, self.node.now_ms(), state.ephemeral)
        self._forget_unseen()

    def _settle_log(self, name: bytes, mine: Log) -> None:
        its = self.node.machine.names[name].log
        assert its is not None
        if mine.config.durability == Durability.EPHEMERAL:
            mine.head, mine.cap_floor, mine.ttl_floor = its.head_seq, its.cap_floor, its.ttl_floor
            mine.forget()
        elif not mine.loose:
            assert its.head_seq == mine.head, f"{name!r} ends at {its.head_seq}; {mine.head} was written"
        assert mine.next_seq <= its.next_seq or mine.loose, "a seq may be given out twice"
        if mine.config.durability == Durability.FSYNC and not mine.loose:
            assert mine.next_seq == its.next_seq or mine.skips
        mine.next_seq = its.next_seq
        if mine.loose:
            mine.head = its.head_seq

    def _forget_unseen(self) -> None:
        """Seqs behind the head of a log were lost before anybody was told of them, and may be given out again."""
        heads = {
            number: topic.log.head_seq for number, topic in self.node.machine.topics.items() if topic.log is not None
        }
        self.seen = {place: record for place, record in self.seen.items() if place[1] <= heads.get(place[0], 0)}

    # -- asking

    def ask(
        self,
        command: Command,
        promise: bool | Callable[[Reply], bool],
        step: Callable[[Reply], Step | None] | None = None,
    ) -> Reply:
        """Lets the node decide. `promise`: once the reply may leave, no crash may take back what it says."""
        node = self.node
        self.note(repr(command)[:160])
        before = len(node.machine.outbox)
        try:
            reply = node.shard.handle(command)
        except ShardStopped as stopped:
            if self.faulted:
                raise
            raise AssertionError(f"the shard stopped: {stopped}") from stopped.__cause__ or stopped
        self.counts[f"commands: {type(command).__name__}"] += 1
        position = node.journal.last_position + (1 if node.machine.outbox else 0)
        if isinstance(reply, Refusal):
            self.counts["refusals"] += 1
            return reply
        change = None if step is None else step(reply)
        if change is not None:
            self.dictionary.do(position, change)
            promised = promise if isinstance(promise, bool) else promise(reply)
            if promised and len(node.machine.outbox) > before:  # else there was nothing to promise
                self._promise(position)
        return reply

    def _promise(self, position: int) -> None:
        """Takes note of it when the reply leaves."""
        gate = self.node.shard.gate
        if gate is None:
            self.promised = max(self.promised, position)
            return

        def left(error: BaseException | None) -> None:
            if error is None:
                self.promised = max(self.promised, position)

        gate.subscribe(left)

    # -- looking at everything

    async def read_log(self, name: bytes) -> tuple[list[Record], set[int]]:
        """All records of a log from the start, in pages of any size; and the seqs that tombstones told of."""
        number = self.node.machine.names[name].number
        position = 0
        found: list[Record] = []
        told: set[int] = set()
        while True:
            self.counts["reads"] += 1
            limit = self.dice.choice((1, 3, 10, 100))
            reply = await self.node.read(Read(name, position, limit, self.dice.choice((100, 1 << 20))))
            if self.node.machine.names.get(name) is None or self.node.machine.names[name].number != number:
                return [], set()
            assert isinstance(reply, Records), reply
            self.counts["reads from the archive"] += reply.files_read
            if reply.tombstone is not None:
                told.update(range(reply.tombstone.gap_from, reply.tombstone.gap_to + 1))
            for record in reply.records:
                known = self.seen.setdefault((number, record.seq), record)
                assert known == record, f"{name!r} showed {known} once, and now {record}"
            found += reply.records
            assert [record.seq for record in found] == sorted({record.seq for record in found}), "not in order"
            if reply.next_from_seq == position:
                assert position >= reply.head_seq, f"a reader of {name!r} is stuck at {position} of {reply.head_seq}"
                return found, told
            position = reply.next_from_seq

    async def check_log(self, name: bytes) -> None:
        log = self.dictionary.now.logs[name]
        before, _ = self._living(log)
        found, told = await self.read_log(name)
        if self.dictionary.now.logs.get(name) is not log:
            return
        log.pass_time(self.node.machine.last_ms)
        after, _ = self._living(log)
        got = {record.seq: record for record in found}
        missing = [seq for seq in after if seq not in got]
        assert not missing or log.loose, f"{name!r} has lost {missing[:5]} of {len(after)}; {log.config}"
        for seq, record in got.items():
            assert record == before.get(seq) or log.loose, f"{name!r} has {record}, written was {before.get(seq)}"
        floor = log.evict_floor
        silent = [seq for seq in range(1, floor) if seq not in told and seq in before and seq not in after]
        assert not silent or log.config.ttl_ms, f"{name!r} dropped {silent[:5]} without a word"
        self.counts["logs checked"] += 1

    def _living(self, log: Log) -> tuple[dict[int, Record], int]:
        log.pass_time(self.node.machine.last_ms)
        return {entry.seq: entry.told() for entry in log.living()}, log.head

    async def check_jobs(self) -> None:
        """Every job that was added and is not over is there once, with its payload; no other is."""
        state = self.dictionary.now
        found: dict[bytes, list[JobView]] = {}
        cursor = 0
        while True:
            reply = self.node.shard.handle(ScanJobs(cursor, 7))
            assert isinstance(reply, Jobs)
            for view in reply.jobs:
                if view.payload.startswith(b"j"):
                    found.setdefault(view.payload, []).append(view)
            cursor = reply.cursor
            if cursor == 0:
                break
        if LETTERS_LOG in self.node.machine.names:
            letters, _ = await self.read_log(LETTERS_LOG)
            for letter in letters:
                found.setdefault(letter.data, [])
        now = self.node.machine.last_ms
        for payload, views in found.items():
            job = state.jobs.get(payload)
            assert job is not None, f"nobody added a job {payload[:40]!r}"
            assert len(views) < 2, f"job {payload[:40]!r} is there {len(views)} times: {views}"
            assert not views or not job.over or job.loose, f"job {payload[:40]!r} was over, and is back: {views[0]}"
        for payload, job in state.jobs.items():
            if not job.over and not job.loose and not 0 < job.expires_ms <= now + 2000:
                assert payload in found, f"job {job} is lost"
        self.counts["jobs checked"] += len(found)

    async def check_snapshot(self, name: bytes) -> None:
        """The jobs of a queue as they were when it began, whatever happens while they are gathered."""
        machine = self.node.machine
        topic = machine.names.get(name)
        if topic is None:
            return  # it is gone by the time this begins
        expected = {
            (partition.index, seq): (job.state, job.priority, machine.payload(partition, job))
            for partition in topic.partitions
            for seq, job in partition.jobs.items()
        }
        view = QueueView(machine, topic)
        got: dict[tuple[int, int], tuple[int, int, bytes]] = {}
        try:
            while not view.gave_up and (piece := view.next()) is not None:
                for job in piece.jobs:
                    payload = job.payload
                    if payload is None:
                        pin = piece.pins.get(job.seq, piece.pin)
                        assert pin is not None
                        (payload,) = pin.payloads(topic.number, piece.partition, [job.seq])
                    got[piece.partition, job.seq] = job.state, job.priority, payload
                await asyncio.sleep(self.dice.choice(WAITS_S))
            if not view.gave_up:
                assert got == expected, f"a snapshot of {name!r} differs"
            self.counts["snapshots"] += 1
        finally:
            view.close()

    def check_cold(self) -> None:
        """Whatever has left memory is in the store or in the archive, all of it, at any moment."""
        self.counts["looks at what is cold"] += 1
        store = self.store
        for number, topic in self.node.machine.topics.items():
            for partition in topic.partitions:
                for seq, job in partition.jobs.items():
                    if job.payload is None:
                        assert len(cold_payload(store, number, partition.index, seq)) == job.size
            if topic.log is not None:
                self._check_cold_blocks(number, topic.log)

    def _check_cold_blocks(self, number: int, log: LogPartition) -> None:
        for block in log.blocks:
            if block.content is not None:
                continue
            if not log.in_archive(block):
                stored = len(stored_content(self.store, number, 0, block.first_seq).bodies)
                assert stored >= block.count, f"block {number}/{block.first_seq}: {stored} of {block.count} are stored"
                continue
            if stored_outline(self.store, number, 0, block.first_seq) is None:
                stored_content(self.store, number, 0, block.first_seq)  # raises where it is not there
            (file,) = log.files.touching(block.first_seq, block.first_seq)
            assert self.archive is not None
            assert self.archive.has(file.path), f"{file.path} is gone"

    async def check_everything(self) -> None:
        self.note("check everything")
        self.check_cold()
        await self.check_jobs()
        for name in list(self.dictionary.now.logs):
            if name in self.dictionary.now.logs:
                await self.check_log(name)
        audit(self.node.machine)


def audit_logs_at_hand(machine: Machine) -> None:
    """As `audit_logs`, where every record is in memory or in the store."""
    logs = [topic.log for topic in machine.topics.values() if topic.log is not None]
    if not any(log.files.all for log in logs):
        audit_logs(machine)
