# mypy: disable-error-code="no-any-unimported"
"""Arrow that comes from outside: checks a part of a bulk load, and takes it apart into engine commands.

A part is one Arrow IPC stream in a file. Whoever sent it may be wrong or hostile, so nothing is believed: `inspect`
walks the stream's frames by hand first (sizes, kinds, no compression, an end mark), so that no later step allocates
more than a block; then each block is validated in full, and each column against the bounds of the engine. After that
`blocks` and `Block.pieces` need no checks of their own. What takes time is done by pyarrow without the GIL; what needs
the GIL goes in small steps.

The same file always gives the same pieces in the same order: their numbers are what a load's mark counts.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, repeat
from pathlib import Path
from typing import BinaryIO, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from esker.columns.parts import UNSEEN, Facts, Flaw, flaw_for
from esker.engine import limits
from esker.engine.commands import NO_DETAILS, Append, Details, Enqueue, EnqueueAlike, NewJob, NewRecord
from esker.engine.config import TopicConfig, TopicType
from esker.engine.meta import meta_problem
from esker.errors import LoadProblem, LoadRefused

BLOCK_BYTES_MAX: Final = 64 << 20  # of one Arrow batch: what reading a part holds in memory, twice
BLOCKS_MAX: Final = 100_000
ROWS_MAX: Final = 10_000_000  # of a part: what a thread looks at in a few seconds
TOPICS_MAX: Final = 1000  # different ones in a part
_METADATA_BYTES_MAX: Final = 1 << 20
_STEP_ROWS: Final = 500  # looked at in one go while the interpreter is held
_ESCAPED_BYTES_MAX: Final = 6  # of one byte in a JSON string
_MOST: Final = limits.RECORD_BYTES_MAX

_TEXTS: Final = (pa.string(), pa.large_string())
_BYTES: Final = (*_TEXTS, pa.binary(), pa.large_binary())
_WIDE: Final = (pa.large_string(), pa.large_binary())
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
_COLUMNS: Final[dict[str, tuple[str, tuple[pa.DataType, ...]]]] = {
    "value": ("binary or string", _BYTES),
    "key": ("binary or string", _BYTES),
    **dict.fromkeys(("topic", "tag", "node", "meta"), ("string", _TEXTS)),
    **dict.fromkeys(("priority", "delay_ms", "ttl_ms", "retry_ms", "max_deliveries"), ("integer", _INTEGERS)),
}
COLUMNS: Final = tuple(_COLUMNS)
_BYTE_LIMITS: Final = {
    "value": BLOCK_BYTES_MAX,
    "tag": limits.TAG_BYTES_MAX,
    "node": limits.NODE_BYTES_MAX,
    "meta": limits.META_BYTES_MAX,
    "key": limits.DEDUP_KEY_BYTES_MAX,
    "topic": limits.TOPIC_NAME_BYTES_MAX,
}
_NUMBER_LIMITS: Final = {
    "priority": (limits.PRIORITY_MIN, limits.PRIORITY_MAX),
    "delay_ms": (0, limits.DELAY_MS_MAX),
    "ttl_ms": (0, limits.TTL_MS_MAX),
    "retry_ms": (0, limits.DELAY_MS_MAX),
    "max_deliveries": (0, limits.DELIVERIES_MAX),
}
_OF_DETAILS: Final = ("delay_ms", "max_deliveries", "tag", "node", "meta", "key")

_DAMAGE: Final = (OSError, ValueError, pa.ArrowException)  # all that pyarrow says of a stream that is none

_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_encode_json = msgspec.json.Encoder().encode

Strings = list[bytes]
_Form = Literal["i", "q"]
Numbers = Sequence[int | None]


# -- the frames of a stream


def _walk(file: BinaryIO, size: int) -> None:
    """Raises LoadRefused unless the file is a whole, plain and modest IPC stream."""
    place, blocks = 0, 0
    while True:
        head = file.read(8)
        if len(head) < 8:
            raise _bad(f"the Arrow stream is cut at byte {place}: it has no end mark")
        mark, length = struct.unpack("<Ii", head)
        if mark != 0xFFFFFFFF:
            raise _bad(f"no Arrow stream: byte {place} does not begin a message")
        if length == 0:
            if place + 8 != size:
                raise _bad(f"{size - place - 8} bytes follow the end of the Arrow stream")
            return
        if not 0 < length <= _METADATA_BYTES_MAX:
            raise _bad(f"no Arrow stream: the message at byte {place} has {length} bytes of metadata")
        metadata = file.read(length)
        body = _body_bytes(metadata, place, first=place == 0) if len(metadata) == length else -1
        blocks += 1
        place += 8 + length + max(body, 0)
        if body < 0 or place > size:
            raise _bad(f"the Arrow stream is cut in the message before byte {place}")
        if blocks > BLOCKS_MAX:
            raise _bad(f"more than {BLOCKS_MAX} Arrow batches; write larger ones")
        file.seek(place)


def _body_bytes(metadata: bytes, place: int, first: bool) -> int:
    """Of the message whose metadata this is, a table of flatbuffers: version, header type, header, body length."""
    try:
        (table,) = struct.unpack_from("<I", metadata, 0)
        kind = _field(metadata, table, 1, "<B")
        body = _field(metadata, table, 3, "<q")
        if kind == 1 and first:
            return 0 if body == 0 else -1
        if kind != 3 or first:
            raise _bad(f"the Arrow message at byte {place} is of kind {kind}; expected a schema, then record batches")
        at = _slot(metadata, table, 2)
        header = at + struct.unpack_from("<I", metadata, at)[0]
        if _slot(metadata, header, 3):
            raise _bad("the Arrow batches are compressed; send them uncompressed")
    except struct.error:
        raise _bad(f"the Arrow message at byte {place} is damaged") from None
    if body > BLOCK_BYTES_MAX:
        raise _bad(f"the Arrow batch at byte {place} has {body} bytes; at most {BLOCK_BYTES_MAX}")
    return body


def _slot(data: bytes, table: int, field: int) -> int:
    """Where a field of a flatbuffers table is; 0: it is not there."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise struct.error
    (size,) = struct.unpack_from("<H", data, vtable)
    offset = struct.unpack_from("<H", data, vtable + 4 + 2 * field)[0] if 4 + 2 * field < size else 0
    return table + offset if offset else 0


def _field(data: bytes, table: int, field: int, form: str) -> int:
    at = _slot(data, table, field)
    return int(struct.unpack_from(form, data, at)[0]) if at else 0


# -- looking at a part


def inspect(path: Path, kind: TopicType | None, value_format: str | None) -> Facts:
    """Checks a part. What only some topics could not take is told, not refused, unless `kind` says it is for those.

    Raises LoadRefused, with the row where there is one. Runs in a thread.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        _walk(file, size)
    look = _Look(
        json=value_format != "text" and (kind != TopicType.QUEUE or value_format == "json"),
        text=value_format == "text" or (kind is None and value_format is None),
    )
    try:
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
            columns = _check_schema(reader.schema)
            for batch in reader:
                batch.validate(full=True)
                look.batch(batch)
    except _DAMAGE as error:
        raise _bad(f"the Arrow stream is damaged: {_shown(error)}") from error
    facts = Facts(
        rows=look.rows,
        size=look.size,
        columns=columns,
        topics=sorted(look.topics),
        json=look.json,
        text=look.text,
        record=look.record,
    )
    if kind is not None:
        problem = flaw_for(facts, kind, value_format)
        if problem is not None:
            raise _bad(problem.why, problem.row)
    return facts


def _check_schema(schema: pa.Schema) -> list[str]:
    unknown = [name for name in schema.names if name not in _COLUMNS]
    if unknown:
        shown = ", ".join(repr(name[:64]) for name in unknown[:10])
        raise _bad(f"unknown columns: {shown}; known are {', '.join(COLUMNS)}")
    if len(set(schema.names)) != len(schema.names):
        raise _bad(f"a column is there twice: {', '.join(schema.names)}")
    if "value" not in schema.names:
        raise _bad("the column value is missing")
    for field in schema:
        words, types = _COLUMNS[field.name]
        if field.type not in types:
            raise _bad(f"column {field.name} is of type {str(field.type)[:64]}; expected {words}")
    return [str(name) for name in schema.names]


class _Look:
    """What was seen of a part so far."""

    def __init__(self, json: bool, text: bool) -> None:
        """Whether it is to be seen if values are JSON, and if they are texts."""
        self.rows = self.size = 0
        self.topics: set[bytes] = set()
        self.json = None if json else UNSEEN
        self.text = None if text else UNSEEN
        self.record: Flaw | None = None

    def batch(self, batch: pa.RecordBatch) -> None:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in _NUMBER_LIMITS:
                self._numbers(name, column)
            else:
                self._strings(name, column)
        self._sizes(batch)
        self._values(batch.column("value"))
        if "meta" in batch.schema.names:
            self._metas(batch.column("meta"))
        self.rows += batch.num_rows
        if self.rows > ROWS_MAX:
            raise _bad(f"a part has at most {ROWS_MAX} rows; send several")

    def _numbers(self, name: str, column: pa.Array) -> None:
        least, most = _NUMBER_LIMITS[name]
        span = pc.min_max(column).as_py()
        for bad in (span["min"], span["max"]):
            if bad is not None and not least <= bad <= most:
                row = self.rows + pc.index(column, bad).as_py()
                raise _bad(f"{name} is {bad}; it must be {least} to {most}", row)

    def _strings(self, name: str, column: pa.Array) -> None:
        if name in ("value", "topic") and column.null_count:
            row = self.rows + pc.index(column.is_null(), True).as_py()
            raise _bad(f"{name} is null", row)
        lengths = pc.binary_length(column)
        longest = pc.max(lengths).as_py() or 0
        self.size += pc.sum(lengths).as_py() or 0
        if longest > _BYTE_LIMITS[name]:
            row = self.rows + pc.index(lengths, longest).as_py()
            raise _bad(f"{name} has {longest} bytes; at most {_BYTE_LIMITS[name]}", row)
        if name == "topic":
            self.topics.update(text.encode() for text in pc.unique(column).to_pylist())
            if len(self.topics) > TOPICS_MAX:
                raise _bad(f"more than {TOPICS_MAX} topics in one part")

    def _sizes(self, batch: pa.RecordBatch) -> None:
        if self.record is not None:
            return
        sizes = pc.cast(pc.binary_length(batch.column("value")), pa.int64())
        if "meta" in batch.schema.names:
            sizes = pc.add(sizes, pc.cast(pc.fill_null(pc.binary_length(batch.column("meta")), 0), pa.int64()))
        if (pc.max(sizes).as_py() or 0) > limits.RECORD_BYTES_MAX:
            row = pc.index(pc.greater(sizes, limits.RECORD_BYTES_MAX), True).as_py()
            self.record = _too_large(self.rows + row, sizes[row].as_py())

    def _values(self, column: pa.Array) -> None:
        if self.text is None and not _are_short_texts(column):
            self.text = self._first(column, _text_problem)
        if self.json is None:
            self.json = self._first(column, _json_problem if column.type in _TEXTS else _json_bytes_problem)

    def _metas(self, column: pa.Array) -> None:
        flaw = self._first(column.fill_null(""), meta_problem)
        if flaw is not None:
            raise _bad(flaw.why, flaw.row)

    def _first(self, column: pa.Array, problem: Callable[[bytes], str | None]) -> Flaw | None:
        """The first value with a problem. In steps, with rests: the event loop needs the interpreter too."""
        for start in range(0, len(column), _STEP_ROWS):
            began = time.perf_counter()
            for row, value in enumerate(strings(column, start, min(start + _STEP_ROWS, len(column))), start):
                found = problem(value)
                if found is not None:
                    return Flaw(self.rows + row, found)
            time.sleep(time.perf_counter() - began)
        return None


def _are_short_texts(column: pa.Array) -> bool:
    """UTF-8, and short enough for a record however many escapes they need: then no single one has to be looked at."""
    if (pc.max(pc.binary_length(column)).as_py() or 0) * _ESCAPED_BYTES_MAX > limits.RECORD_BYTES_MAX - 2:
        return False
    if column.type in _TEXTS:
        return True
    try:
        column.cast(pa.large_string() if column.type in _WIDE else pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _json_problem(value: bytes) -> str | None:
    try:
        _check_json(value)
    except msgspec.DecodeError as error:
        return f"the value is no JSON text: {error}"
    except RecursionError:
        return "the value is nested too deeply"
    return None


def _json_bytes_problem(value: bytes) -> str | None:
    return _utf8_problem(value) or _json_problem(value)


def _text_problem(value: bytes) -> str | None:
    problem = _utf8_problem(value)
    if problem is not None or len(value) * _ESCAPED_BYTES_MAX + 2 <= limits.RECORD_BYTES_MAX:
        return problem
    size = len(_encode_json(value.decode()))
    return f"the value has {size} bytes as JSON; at most {_MOST}" if size > _MOST else None


def _utf8_problem(value: bytes) -> str | None:
    if value.isascii():
        return None
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"the value is not UTF-8: {error.reason} at byte {error.start}"
    return None


def _too_large(row: int, size: int) -> Flaw:
    return Flaw(row, f"value and meta have {size} bytes; a record has at most {limits.RECORD_BYTES_MAX}")


def _shown(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _bad(message: str, row: int | None = None) -> LoadRefused:
    return LoadRefused(LoadProblem.BAD_PART, message, row)


# -- taking it apart


def strings(column: pa.Array, start: int, stop: int) -> Strings:
    """The values of a column without nulls, from the buffers themselves: pyarrow would make two objects of each."""
    data = column.buffers()[2]
    if data is None or start == stop:
        return [b""] * (stop - start)
    places = _places(column, start, stop).tolist()
    first = places[0]
    text = data.slice(first, places[-1] - first).to_pybytes()
    if first:
        return [text[low - first : high - first] for low, high in pairwise(places)]
    return [text[low:high] for low, high in pairwise(places)]


def _numbers(column: pa.Array, start: int, stop: int) -> Numbers:
    if column.null_count:
        return list(column.slice(start, stop - start).to_pylist())
    return _window(column.buffers()[1], "q", column.offset + start, stop - start).tolist()


def _places(column: pa.Array, start: int, stop: int) -> memoryview[int]:
    """Where each value of a column of strings begins in its data, and where the last one ends."""
    form: _Form = "q" if column.type in _WIDE else "i"
    return _window(column.buffers()[1], form, column.offset + start, stop - start + 1)


def _window(buffer: pa.Buffer, form: _Form, first: int, count: int) -> memoryview[int]:
    """Whoever made a buffer may have made it longer than it need be."""
    width = struct.calcsize(form)
    return memoryview(buffer.slice(first * width, count * width)).cast(form)


class Piece(msgspec.Struct, frozen=True):
    """Rows of one topic: what one chunk of a load publishes. `topic` None: the load names it."""

    block: Block
    topic: bytes | None
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    def work(self, topic: bytes, config: TopicConfig, value_format: str | None) -> Enqueue | EnqueueAlike | Append:
        """The command for a topic that is there."""
        values = self._strings("value")
        assert values is not None, "every part has values"
        if value_format == "text":
            values = [_encode_json(value.decode()) for value in values]
        if config.type == TopicType.LOG:
            return Append(topic, self._records(values, value_format), create=False)
        return self._jobs(topic, config, values)

    def _records(self, values: Strings, value_format: str | None) -> list[NewRecord]:
        if value_format != "text":
            values = _on_one_line(values)
        tags, nodes, metas = self._strings("tag") or self._strings("key"), self._strings("node"), self._strings("meta")
        if metas is not None:
            metas = _on_one_line(metas)
        none: repeat[bytes] = repeat(b"")
        return list(map(NewRecord, values, tags or none, nodes or none, metas or none))

    def _jobs(self, topic: bytes, config: TopicConfig, values: Strings) -> Enqueue | EnqueueAlike:
        priorities, retries, ttls = self._numbers("priority"), self._numbers("retry_ms"), self._numbers("ttl_ms")
        details = self._details()
        if priorities is None and retries is None and ttls is None and details is None:
            return EnqueueAlike(topic, values, config.lease_ms, config.ttl_ms)
        zeros = repeat(0) if priorities is None else [each or 0 for each in priorities]
        jobs = map(NewJob, values, zeros, retries or repeat(None), ttls or repeat(None), details or repeat(None))
        return Enqueue(topic, list(jobs), create=False)

    def _details(self) -> Sequence[Details | None] | None:
        if not any(name in self.block.columns for name in _OF_DETAILS):
            return None
        none: repeat[bytes] = repeat(b"")
        delays, deliveries = self._numbers("delay_ms"), self._numbers("max_deliveries")
        made = map(
            Details,
            repeat(0) if delays is None else [each or 0 for each in delays],
            deliveries or repeat(None),
            self._strings("tag") or none,
            self._strings("node") or none,
            self._strings("meta") or none,
            none,
            repeat(0),
            repeat(0),
            self._strings("key") or none,
        )
        return [None if each == NO_DETAILS else each for each in made]

    def _strings(self, name: str) -> Strings | None:
        column = self.block.columns.get(name)
        return None if column is None else strings(column, self.start, self.stop)

    def _numbers(self, name: str) -> Numbers | None:
        column = self.block.columns.get(name)
        return None if column is None else _numbers(column, self.start, self.stop)


class Block:
    """One Arrow batch of a part that was inspected. Rows of one topic lie together, in the order they had."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.runs: list[tuple[bytes | None, int, int]] = [(None, 0, batch.num_rows)]  # topic, first row, end
        if "topic" in batch.schema.names:
            batch = self._by_topic(batch)
        self.columns: dict[str, pa.Array] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in _NUMBER_LIMITS:
                self.columns[name] = pc.cast(column, pa.int64())
            elif name != "topic":
                self.columns[name] = column.fill_null(b"" if column.type in _BYTES[2:] else "")

    def _by_topic(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        encoded = batch.column("topic").dictionary_encode()
        names = [name.encode() for name in encoded.dictionary.to_pylist()]
        if len(names) > 1:
            batch = batch.take(pc.sort_indices(encoded.indices))  # a stable sort
        counts = {each["values"]: each["counts"] for each in pc.value_counts(encoded.indices).to_pylist()}
        self.runs, start = [], 0
        for number, name in enumerate(names):
            self.runs.append((name, start, start + counts[number]))
            start += counts[number]
        return batch

    def pieces(self, rows_max: int, bytes_max: int) -> Iterator[Piece]:
        """In the order of the rows, each of one topic, and none too large for one step."""
        for topic, start, end in self.runs:
            while start < end:
                stop = min(start + rows_max, end)
                places = _places(self.columns["value"], start, stop)
                while stop - start > 1 and places[stop - start] - places[0] > bytes_max:
                    stop = start + (stop - start) // 2
                yield Piece(self, topic, start, stop)
                start = stop


def blocks(path: Path) -> Iterator[Block]:
    """The blocks of a part, one in memory at a time. Raises LoadRefused when the file is not as it was."""
    try:
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                yield Block(batch)
    except _DAMAGE as error:
        raise _bad(f"{path.name} cannot be read: {_shown(error)}") from error


def _on_one_line(texts: Strings) -> Strings:
    """JSON texts without line breaks, which would break the frames of a stream."""
    if any(b"\n" in text or b"\r" in text for text in texts):
        return [msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text for text in texts]
    return texts
