# mypy: disable-error-code="no-any-unimported"
"""Jobs of a queue as columns: what a snapshot (engine/queues/snapshot.py) gathers, in batches.

Millions of jobs pass here, and reading a field of one costs more than anything that is done with it later. So:

* Every job tells what every job has: its number, its times, its priority, its size. All of a piece is read before the
  next piece, while it is in the processor's cache.
* Only a job that is marked tells the rest, and most are not: they wait to be delivered for the first time, and have no
  details.
* Numbers go by the thousand into the very bytes that Arrow wants, and payloads are joined.

A column that is not asked for costs nothing; without `value`, no payload is read.

Runs in a thread beside the loop, with the interpreter held for most of it: `BATCH_ROWS` keeps each step short.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, compress
from operator import attrgetter
from pathlib import Path
from struct import pack
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from esker.columns import arrow, jobids
from esker.engine.commands import Details
from esker.engine.queues.job import Job, JobState, wrong_size
from esker.engine.queues.snapshot import STATES, Piece, Selection
from esker.errors import InvariantBroken

BATCH_ROWS: Final = 16_384  # no single step of so many takes a millisecond
_ID_CHARACTERS = 26


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

_OF_ALL: Final[dict[str, Callable[[list[Job]], list[int]]]] = {
    "offset": lambda jobs: [job.seq for job in jobs],
    "created": lambda jobs: [job.created_ms for job in jobs],
    "priority": lambda jobs: [job.priority for job in jobs],
    "expires": lambda jobs: [job.expires_ms for job in jobs],  # the Redis front gives every job a TTL
    "size": lambda jobs: [job.size for job in jobs],
}
_MADE_OF: Final = {"message_id": ("offset", "created"), "value": ("size",)}  # columns that are made of others
_OF_MARKED: Final[dict[str, Callable[[list[Job]], list[int]]]] = {
    "state": lambda jobs: [job.state for job in jobs],
    "attempts": lambda jobs: [job.attempts for job in jobs],
    "nacks": lambda jobs: [job.nacks for job in jobs],
    "requeues": lambda jobs: [job.requeues for job in jobs],
    "due": lambda jobs: [job.due_ms for job in jobs],
    "lease": lambda jobs: [job.token for job in jobs],
}
_OF_DETAILS: Final[dict[str, Callable[[Details], bytes]]] = {
    name: attrgetter(name) for name in ("tag", "node", "meta", "key")
}
_TOLD_BY_MARKED: Final = {*_OF_MARKED, *_OF_DETAILS, "holder"}
_STATE_NAMES: Final = pa.array(sorted(STATES, key=STATES.__getitem__), arrow.TEXT)
_READY_NAME: Final = _STATE_NAMES[int(JobState.READY)]
_ID_ENDS: Final = pa.py_buffer(np.arange(0, _ID_CHARACTERS * (BATCH_ROWS + 1), _ID_CHARACTERS, dtype=np.int32))


class Source:
    """Where the jobs are from, and what is wanted of them; `columns` None: all."""

    __slots__ = ("name", "number", "of_all", "of_marked", "schema", "wanted")

    def __init__(self, name: bytes, number: int, wanted: Selection, columns: Sequence[str] | None) -> None:
        """Raises UnknownColumn."""
        self.name = name
        self.number = number
        self.wanted = wanted
        self.schema = arrow.chosen(FIELDS, columns)
        needed = {each for column in self.schema.names for each in _MADE_OF.get(column, (column,))}
        self.of_all = [each for each in _OF_ALL if each in needed]
        self.of_marked = not needed.isdisjoint(_TOLD_BY_MARKED)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.name, self.number, self.wanted, *self.schema.names

    def has(self, column: str) -> bool:
        return column in self.schema.names


class _Block:
    """The rows of one batch, as far as they were read."""

    __slots__ = ("bytes", "holders", "marked", "numbers", "partition", "payloads", "places", "rows")

    def __init__(self, source: Source, partition: int) -> None:
        self.partition = partition
        self.rows = 0
        self.numbers = {name: bytearray() for name in source.of_all}
        self.payloads: list[bytes | None] = []
        self.bytes = 0  # of the payloads
        self.marked: list[Job] = []
        self.places: list[int] = []  # the rows of the marked
        self.holders: dict[int, bytes] = {}


def write_chunk(
    path: Path, source: Source, pieces: Iterable[Piece], check_room: Callable[[int], None] = lambda _: None
) -> int:
    """Writes a file that is a whole Arrow stream. Returns how many jobs are in it.

    Before bytes are written, `check_room` is told how many; it may raise.
    """
    rows = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, source.schema) as stream:
        for batch in batches(source, pieces):
            check_room(batch.nbytes)
            stream.write_batch(batch)
            rows += batch.num_rows
    return rows


def batches(source: Source, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    for block in _blocks(source, pieces):
        columns = _Columns(source, block)
        arrays = [columns.make(name) for name in source.schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=source.schema)


def _blocks(source: Source, pieces: Iterable[Piece]) -> Iterator[_Block]:
    """Bounded in rows and in bytes of payloads, which are in memory from here on."""
    block = _Block(source, 0)
    for piece in pieces:
        jobs = source.wanted.pick(piece.jobs)
        while jobs:
            if block.rows and (
                block.partition != piece.partition
                or block.rows + len(jobs) > BATCH_ROWS
                or block.bytes >= arrow.BATCH_BYTES
            ):
                yield block
                block = _Block(source, 0)
            block.partition = piece.partition
            jobs = _fill(block, source, piece, jobs)
    if block.rows:
        yield block


def _fill(block: _Block, source: Source, piece: Piece, jobs: list[Job]) -> list[Job]:
    """Adds as many as fit by their bytes, and at least one. Returns the rest."""
    rest: list[Job] = []
    read = {name: _OF_ALL[name](jobs) for name in source.of_all}
    if source.has("value"):
        size = sum(read["size"])
        if block.bytes + size > arrow.BATCH_BYTES:
            fit = max(1, bisect_right(list(accumulate(read["size"])), arrow.BATCH_BYTES - block.bytes))
            jobs, rest = jobs[:fit], jobs[fit:]
            read = {name: numbers[:fit] for name, numbers in read.items()}
            size = sum(read["size"])
        block.payloads += _payloads(source.number, piece, jobs)
        block.bytes += size
    for name, numbers in read.items():
        block.numbers[name] += _packed(numbers)
    if source.of_marked:
        _add_marked(block, jobs)
        block.holders.update(piece.holders)
    block.rows += len(jobs)
    return rest


def _add_marked(block: _Block, jobs: list[Job]) -> None:
    """A job that has a token was delivered, and one that waits for a time is not ready: that need not be asked."""
    marks = [job.state or job.attempts or job.nacks or job.requeues or job.details for job in jobs]
    if any(marks):
        block.marked += compress(jobs, marks)
        block.places += compress(range(block.rows, block.rows + len(jobs)), marks)


def _payloads(number: int, piece: Piece, jobs: list[Job]) -> list[bytes | None]:
    """Those that are in the store only are read from there."""
    payloads = [job.payload for job in jobs]
    if piece.pin is not None and not piece.pins and not any(payloads):  # all of a deep backlog
        cold = piece.pin.payloads(number, piece.partition, [job.seq for job in jobs])
        _check_sizes(number, piece.partition, jobs, cold)
        return list(cold)
    rest: list[int] = []
    for place in [place for place, payload in enumerate(payloads) if payload is None]:
        seq = jobs[place].seq
        if seq in piece.pins:
            (payloads[place],) = piece.pins[seq].payloads(number, piece.partition, (seq,))
        else:
            rest.append(place)
    if rest:
        assert piece.pin is not None, "a job without a payload and without a pin"
        found = piece.pin.payloads(number, piece.partition, [jobs[place].seq for place in rest])
        _check_sizes(number, piece.partition, [jobs[place] for place in rest], found)
        for place, payload in zip(rest, found, strict=True):
            payloads[place] = payload
    return payloads


def _check_sizes(number: int, index: int, jobs: list[Job], payloads: Sequence[bytes]) -> None:
    for job, payload in zip(jobs, payloads, strict=True):
        if len(payload) != job.size:
            raise InvariantBroken(wrong_size(number, index, job, len(payload)))


class _Columns:
    """Makes the columns of one batch."""

    def __init__(self, source: Source, block: _Block) -> None:
        self._source = source
        self._block = block
        self._rows = block.rows
        self._numbers = {name: np.frombuffer(numbers, np.int64) for name, numbers in block.numbers.items()}
        self._places = np.frombuffer(_packed(block.places), np.int64)

    def make(self, name: str) -> pa.Array:
        if name in _OTHERS:
            return _OTHERS[name](self)
        if name in _OF_DETAILS:
            return self._of_details(_OF_DETAILS[name])
        numbers = self._numbers[name] if name in _OF_ALL else self._of_marked(name)
        kind = FIELDS[name].type
        return _times(numbers) if kind == arrow.TIME else _array(numbers, kind)

    def message_id(self) -> pa.Array:
        ids = jobids.joined(
            self._source.number, self._block.partition, self._numbers["offset"], self._numbers["created"]
        )
        return pa.Array.from_buffers(arrow.TEXT, self._rows, [None, _ID_ENDS, pa.py_buffer(ids)])

    def topic(self) -> pa.Array:
        name = self._source.name.decode("utf-8", "backslashreplace")
        return pa.repeat(pa.scalar(name, arrow.TEXT), self._rows)

    def partition(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._block.partition, arrow.SMALL), self._rows)

    def state(self) -> pa.Array:
        if not self._block.marked:
            return pa.repeat(_READY_NAME, self._rows)
        return pc.take(_STATE_NAMES, _array(self._of_marked("state"), arrow.SMALL))

    def lease(self) -> pa.Array:
        return self._texts([b"%x" % token if token else None for token in _OF_MARKED["lease"](self._block.marked)])

    def holder(self) -> pa.Array:
        holders = self._block.holders
        return self._texts([holders.get(job.seq) for job in self._block.marked])

    def value(self) -> pa.Array:
        joined = b"".join(self._block.payloads)  # type: ignore[arg-type]  # none is missing any more
        ends = np.zeros(self._rows + 1, np.int32)
        np.cumsum(self._numbers["size"], out=ends[1:])
        if ends[-1] != len(joined):
            raise InvariantBroken(f"payloads of {self._source.name!r} are not as long as their jobs say")
        return pa.Array.from_buffers(arrow.BYTES, self._rows, [None, pa.py_buffer(ends), pa.py_buffer(joined)])

    def _of_details(self, of: Callable[[Details], bytes]) -> pa.Array:
        """An empty one is none."""
        every = [job.details for job in self._block.marked]
        return self._texts([None if details is None else of(details) or None for details in every])

    def _of_marked(self, name: str) -> NDArray[np.int64]:
        """0 for the others."""
        numbers = np.zeros(self._rows, np.int64)
        if self._block.marked:
            numbers[self._places] = _OF_MARKED[name](self._block.marked)
        return numbers

    def _texts(self, of_marked: list[bytes | None]) -> pa.Array:
        if not any(of_marked):
            return pa.nulls(self._rows, arrow.TEXT)
        if len(of_marked) < self._rows:
            every: list[bytes | None] = [None] * self._rows
            for place, text in zip(self._block.places, of_marked, strict=True):
                every[place] = text
            of_marked = every
        return arrow.texts(of_marked)


_OTHERS: Final[dict[str, Callable[[_Columns], pa.Array]]] = {
    "message_id": _Columns.message_id,
    "topic": _Columns.topic,
    "partition": _Columns.partition,
    "state": _Columns.state,
    "lease": _Columns.lease,
    "holder": _Columns.holder,
    "value": _Columns.value,
}


def _packed(numbers: list[int]) -> bytes:
    return pack(f"{len(numbers)}q", *numbers)  # half the cost of an array of the list


def _array(numbers: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    made = numbers.astype(np.int32) if kind == arrow.SMALL else numbers
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(made)])


def _times(millis: NDArray[np.int64]) -> pa.Array:
    """0 is no time."""
    known = np.count_nonzero(millis)
    if not known:
        return pa.nulls(len(millis), arrow.TIME)
    validity = None if known == len(millis) else pa.py_buffer(np.packbits(millis != 0, bitorder="little"))
    return pa.Array.from_buffers(arrow.TIME, len(millis), [validity, pa.py_buffer(millis * 1000)])
