"""Records of a log that are in files of the archive instead of the store.

Only their payloads are there. The blocks themselves stay in memory and in the store, with their marks, sizes and times
(`block.Outline`), so floors, caps, counts and deletions go on as if nothing had moved. What the archive has is always
the oldest part of a log, in files that do not overlap. A file is released when none of its blocks is left.

Routers read payloads without waiting, so nothing is archived before every router of the log has passed it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from esker.engine import commands, events, limits
from esker.engine.logs.block import runs_of
from esker.engine.replies import Archived, Done
from esker.errors import Code, Refusal

if TYPE_CHECKING:
    from esker.engine.logs.partition import LogPartition
    from esker.engine.machine import Machine


class ArchivedFile(msgspec.Struct, frozen=True, array_like=True):
    first: int
    last: int
    path: str
    sha256: str = ""


class Files:
    """The files of one log, in order of their seqs."""

    __slots__ = ("all",)

    def __init__(self) -> None:
        self.all: list[ArchivedFile] = []

    @property
    def upto(self) -> int:
        """The last seq that is in a file; 0: there is none."""
        return self.all[-1].last if self.all else 0

    def add(self, file: ArchivedFile) -> bool:
        """False: it is known already, and perhaps gone again."""
        if file.last <= self.upto:
            return False
        self.all.append(file)
        return True

    def touching(self, first: int, last: int) -> list[ArchivedFile]:
        """Those with a seq from `first` to `last`."""
        start = bisect_left(self.all, first, key=lambda file: file.last)
        found = []
        for at in range(start, len(self.all)):
            if self.all[at].first > last:
                break
            found.append(self.all[at])
        return found

    def remove(self, file: ArchivedFile) -> None:
        del self.all[bisect_left(self.all, file.last, key=lambda file: file.last)]


def archive(machine: Machine, command: commands.ArchiveRecords, now: int) -> Done | Refusal:
    """Takes a file into the log, unless what it holds is gone by now, or not yet free to go."""
    topic = machine.topics.get(command.topic)
    log = None if topic is None else topic.log
    if log is None or not log.topic.journaled or command.first <= log.files.upto:
        return Refusal(Code.TOPIC_NOT_FOUND, f"no log {command.topic} has records from {command.first} to be archived")
    if command.last > archivable_upto(machine, log):
        return Refusal(Code.BAD_REQUEST, f"a router has yet to forward records up to {command.last}")
    block = next(log.blocks_after(command.first - 1), None)
    if block is None or block.end > command.last + 1:
        return Refusal(Code.TOPIC_NOT_FOUND, f"the records from {command.first} to {command.last} are all gone")
    if command.last >= log.blocks[-1].first_seq:
        return Refusal(Code.BAD_REQUEST, f"the block with record {command.last} still grows")
    event = events.LogArchived(log.topic.number, 0, now, command.first, command.last, command.file, command.sha256)
    machine.record(log, event, sync=False)
    return Done(1)


def archivable_upto(machine: Machine, log: LogPartition) -> int:
    """The last seq that every router of the log has passed."""
    routers = machine.routers.by_source.get(log.topic.number, {}).values()
    return min((router.cursor for router in routers), default=limits.SEQ_MAX)


def wanted(log: LogPartition, command: commands.Read, after: int, upto: int) -> Archived | None:
    """What a read behind `after`, of nothing behind `upto`, has to fetch from a file; None: the next record is here."""
    for block in log.blocks_after(after):
        if block.first_seq > upto:
            return None
        if block.live & block.bits(after + 1, upto):
            return _from_file(log, command, after, upto, block.first_seq) if log.in_archive(block) else None
    return None


def _from_file(log: LogPartition, command: commands.Read, after: int, upto: int, start: int) -> Archived:
    (file,) = log.files.touching(start, start)
    nodes = command.nodes if log.topic.config.dedupe_node else frozenset[bytes]()
    limit = max(1, min(command.limit, limits.READ_RECORDS_MAX))
    enough = limits.READ_LOOK_MAX if nodes else limit
    upto = min(upto, file.last)
    runs: list[int] = []
    count = 0
    for block in log.blocks_after(after):
        if block.first_seq > upto:
            break
        if count >= enough or not log.in_archive(block):
            upto = block.first_seq - 1
            break
        live = block.live & block.bits(after + 1, upto)
        runs_of(live, block.first_seq, runs)
        count += live.bit_count()
    max_bytes = min(command.max_bytes, limits.READ_BYTES_MAX)
    return Archived(log.topic.number, file.path, runs, upto, limit, max_bytes, nodes, file.sha256)
