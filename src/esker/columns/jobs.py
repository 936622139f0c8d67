# mypy: disable-error-code="no-any-unimported"
"""Jobs of a queue as columns: what a snapshot (engine/queues/snapshot.py) gathers, in batches.

Millions of jobs pass here, so a column of numbers is packed into the very bytes that Arrow wants, which costs a tenth
of a conversion, and a column that no job fills is not looked at job by job. A column that is not asked for costs
nothing; without `value`, no payload is read.

Runs in a thread beside the loop, with the interpreter held for most of it: `BATCH_ROWS` keeps each step short.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from struct import pack
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from esker.columns import arrow
from esker.columns.jobids import JobIds
from esker.engine.commands import Details
from esker.engine.queues.job import Job
from esker.engine.queues.snapshot import STATES, Piece, Selection

BATCH_ROWS: Final = 16_384  # no single step of so many takes a millisecond
_ID_CHARACTERS = 26
_MILLIS: Final = pa.timestamp("ms", tz="UTC")


def _field(name: str, kind: pa.DataType, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


FIELDS: Final = {
    field.name: field
    for field in (
        _field("message_id", arrow.TEXT),
        _field("topic", arrow.TEXT),
        _field("partition", arrow.SMALL),
        _field("offset", arrow.NUMBER),
        _field("state", arrow.TEXT),
        _field("priority", arrow.NUMBER),
        _field("attempts", arrow.SMALL),
        _field("nacks", arrow.SMALL),
        _field("requeues", arrow.SMALL),
        _field("created", arrow.TIME),
        _field("due", arrow.TIME, nullable=True),
        _field("expires", arrow.TIME, nullable=True),
        _field("lease", arrow.TEXT, nullable=True),
        _field("holder", arrow.TEXT, nullable=True),
        _field("tag", arrow.TEXT, nullable=True),
        _field("node", arrow.TEXT, nullable=True),
        _field("meta", arrow.TEXT, nullable=True),
        _field("key", arrow.TEXT, nullable=True),
        _field("value", arrow.BYTES),
        _field("size", arrow.NUMBER),
    )
}

_NUMBERS: Final[dict[str, Callable[[list[Job]], list[int]]]] = {
    "offset": lambda jobs: [job.seq for job in jobs],
    "priority": lambda jobs: [job.priority for job in jobs],
    "attempts": lambda jobs: [job.attempts for job in jobs],
    "nacks": lambda jobs: [job.nacks for job in jobs],
    "requeues": lambda jobs: [job.requeues for job in jobs],
    "size": lambda jobs: [job.size for job in jobs],
}
_TIMES: Final[dict[str, Callable[[list[Job]], list[int]]]] = {
    "created": lambda jobs: [job.created_ms for job in jobs],
    "due": lambda jobs: [job.due_ms for job in jobs],
    "expires": lambda jobs: [job.expires_ms for job in jobs],
}
_OF_DETAILS: Final[dict[str, Callable[[Details], bytes]]] = {
    name: attrgetter(name) for name in ("tag", "node", "meta", "key")
}
_STATE_NAMES: Final = pa.array(sorted(STATES, key=STATES.__getitem__), arrow.TEXT)
_ID_ENDS: Final = pa.py_buffer(pack(f"{BATCH_ROWS + 1}i", *range(0, _ID_CHARACTERS * (BATCH_ROWS + 1), _ID_CHARACTERS)))


class Source:
    """Where the jobs are from, and what is wanted of them; `columns` None: all."""

    __slots__ = ("name", "number", "schema", "wanted")

    def __init__(self, name: bytes, number: int, wanted: Selection, columns: Sequence[str] | None) -> None:
        """Raises UnknownColumn."""
        self.name = name
        self.number = number
        self.wanted = wanted
        self.schema = arrow.chosen(FIELDS, columns)

    def has(self, column: str) -> bool:
        return column in self.schema.names


class _Block:
    """The rows of one batch."""

    __slots__ = ("holders", "jobs", "partition", "size")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.jobs: list[Job] = []
        self.holders: dict[int, bytes] = {}
        self.size = 0  # of the payloads


def write_chunk(path: Path, source: Source, pieces: Iterable[Piece]) -> int:
    """Writes a file that is a whole Arrow stream. Returns how many jobs are in it."""
    rows = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, source.schema) as stream:
        for batch in batches(source, pieces):
            stream.write_batch(batch)
            rows += batch.num_rows
    return rows


def batches(source: Source, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    ids = JobIds()
    for block in _blocks(source, pieces):
        columns = _Columns(source, block, ids)
        arrays = [columns.make(name) for name in source.schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=source.schema)


def _blocks(source: Source, pieces: Iterable[Piece]) -> Iterator[_Block]:
    """Bounded in rows and in bytes of payloads, which are in memory from here on."""
    block = _Block(0)
    for piece in pieces:
        jobs = source.wanted.pick(piece.jobs)
        while jobs:
            if block.jobs and (
                block.partition != piece.partition
                or len(block.jobs) + len(jobs) > BATCH_ROWS
                or block.size >= arrow.BATCH_BYTES
            ):
                yield block
                block = _Block(0)
            block.partition = piece.partition
            jobs = _fill(block, source, piece, jobs)
    if block.jobs:
        yield block


def _fill(block: _Block, source: Source, piece: Piece, jobs: list[Job]) -> list[Job]:
    """Adds as many as fit by their bytes, and at least one. Returns the rest."""
    fit = len(jobs)
    if source.has("value"):
        sizes = list(accumulate([job.size for job in jobs]))
        if block.size + sizes[-1] > arrow.BATCH_BYTES:
            fit = max(1, bisect_right(sizes, arrow.BATCH_BYTES - block.size))
        _warm(source.number, piece, jobs[:fit])
        block.size += sizes[fit - 1]
    block.jobs += jobs[:fit]
    block.holders.update(piece.holders)
    return jobs[fit:]


def _warm(number: int, piece: Piece, jobs: Sequence[Job]) -> None:
    """Brings payloads into memory that are in the store only. The jobs are copies, and ours."""
    cold = [job for job in jobs if job.payload is None]
    if not cold:
        return
    alone = [job for job in cold if job.seq in piece.pins]
    for job in alone:
        job.payload = piece.pins[job.seq].payloads(number, piece.partition, (job.seq,))[0]
    rest = [job for job in cold if job.payload is None]
    if rest:
        assert piece.pin is not None, "a job without a payload and without a pin"
        found = piece.pin.payloads(number, piece.partition, [job.seq for job in rest])
        for job, payload in zip(rest, found, strict=True):
            job.payload = payload


class _Columns:
    """Makes the columns of one batch."""

    def __init__(self, source: Source, block: _Block, ids: JobIds) -> None:
        self._source = source
        self._block = block
        self._jobs = block.jobs
        self._rows = len(block.jobs)
        self._ids = ids
        self._details: list[Details | None] | None = None

    def make(self, name: str) -> pa.Array:
        if name in _NUMBERS:
            return _numbers(_NUMBERS[name](self._jobs), FIELDS[name].type)
        if name in _TIMES:
            return _times(_TIMES[name](self._jobs))
        if name in _OF_DETAILS:
            return self._of_details(_OF_DETAILS[name])
        return _OTHERS[name](self)

    def message_id(self) -> pa.Array:
        seqs, made = _NUMBERS["offset"](self._jobs), _TIMES["created"](self._jobs)
        ids = self._ids.joined(self._source.number, self._block.partition, seqs, made)
        return pa.Array.from_buffers(arrow.TEXT, self._rows, [None, _ID_ENDS, pa.py_buffer(ids.encode())])

    def topic(self) -> pa.Array:
        name = self._source.name.decode("utf-8", "backslashreplace")
        return pa.repeat(pa.scalar(name, arrow.TEXT), self._rows)

    def partition(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._block.partition, arrow.SMALL), self._rows)

    def state(self) -> pa.Array:
        return pc.take(_STATE_NAMES, _numbers([job.state for job in self._jobs], arrow.SMALL))

    def lease(self) -> pa.Array:
        tokens = [job.token for job in self._jobs]
        if not any(tokens):
            return pa.nulls(self._rows, arrow.TEXT)
        return pa.array([f"{token:x}" if token else None for token in tokens], arrow.TEXT)

    def holder(self) -> pa.Array:
        holders = self._block.holders
        if not holders:
            return pa.nulls(self._rows, arrow.TEXT)
        return arrow.texts([holders.get(job.seq) for job in self._jobs])

    def value(self) -> pa.Array:
        return pa.array([job.payload for job in self._jobs], arrow.BYTES)

    def _of_details(self, of: Callable[[Details], bytes]) -> pa.Array:
        """An empty one is none."""
        if self._details is None:
            self._details = [job.details for job in self._jobs]
        if not any(self._details):
            return pa.nulls(self._rows, arrow.TEXT)
        return arrow.texts([None if details is None else of(details) or None for details in self._details])


_OTHERS: Final[dict[str, Callable[[_Columns], pa.Array]]] = {
    "message_id": _Columns.message_id,
    "topic": _Columns.topic,
    "partition": _Columns.partition,
    "state": _Columns.state,
    "lease": _Columns.lease,
    "holder": _Columns.holder,
    "value": _Columns.value,
}


def _numbers(values: Sequence[int], kind: pa.DataType) -> pa.Array:
    rows = len(values)
    code = "i" if kind == arrow.SMALL else "q"
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(pack(f"{rows}{code}", *values))])


def _times(millis: Sequence[int]) -> pa.Array:
    """0 is no time."""
    if not any(millis):
        return pa.nulls(len(millis), arrow.TIME)
    made = _numbers(millis, _MILLIS)
    if not all(millis):
        made = pc.if_else(pa.array(map(bool, millis), pa.bool_()), made, pa.scalar(None, _MILLIS))
    return made.cast(arrow.TIME)
