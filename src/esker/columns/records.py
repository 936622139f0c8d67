# mypy: disable-error-code="no-any-unimported"
"""Records of a log as columns: offset, timestamp, value, tag, node, meta.

`value` is the JSON text as it was written, an absent tag, node or meta is null. A column that is not asked for costs
nothing, and one that no record fills next to nothing.

Records come from two places: from memory or the store, as they are (`Part`), and from a file of the archive, which has
columns already (`of_file`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from esker.columns import arrow
from esker.columns.packed import data_of
from esker.engine.events import RecordBody
from esker.engine.logs.block import PackedBodies, offsets
from esker.errors import ArchiveError

FIELDS: Final = {
    "offset": pa.field("offset", arrow.NUMBER, nullable=False),
    "timestamp": pa.field("timestamp", arrow.TIME, nullable=False),
    "value": pa.field("value", arrow.BYTES, nullable=False),
    "tag": pa.field("tag", arrow.TEXT),
    "node": pa.field("node", arrow.TEXT),
    "meta": pa.field("meta", arrow.TEXT),
}

_OPTIONAL: Final[dict[str, Callable[[Sequence[RecordBody]], list[bytes]]]] = {  # twice as quick as one `attrgetter`
    "tag": lambda bodies: [body.tag for body in bodies],
    "node": lambda bodies: [body.node for body in bodies],
    "meta": lambda bodies: [body.meta for body in bodies],
}
_IN_BLOCKS: Final = frozenset(("offset", "timestamp"))  # what is known without looking at a record
_IN_FILES: Final = {"offset": "seq", "timestamp": "ts", "value": "data", "tag": "tag", "node": "node", "meta": "meta"}


class Part(NamedTuple):
    """Some records of a block: its first seq, the mask of those that are wanted, and all of it (`block.Content`)."""

    first_seq: int
    live: int
    starts: Sequence[int]
    stamps: Sequence[int]
    bodies: Sequence[RecordBody] | PackedBodies


class Pick(NamedTuple):
    """Which of the records are wanted, by what they hold. Empty: all."""

    tag_prefix: bytes = b""
    without_nodes: frozenset[bytes] = frozenset()

    @property
    def columns(self) -> list[str]:
        """What must be there to decide."""
        return [name for name, wanted in (("tag", self.tag_prefix), ("node", self.without_nodes)) if wanted]


EVERYTHING: Final = Pick()


def schema_of(names: Sequence[str] | None) -> pa.Schema:
    """Raises UnknownColumn."""
    return arrow.chosen(FIELDS, names)


def of_parts(schema: pa.Schema, parts: Iterable[Part], pick: Pick = EVERYTHING) -> pa.RecordBatch:
    """One batch of all the records of `parts`, which are in order."""
    steps = list(_steps(schema, parts, pick))
    if not steps:
        return _step(schema, [], pick)
    return steps[0] if len(steps) == 1 else pa.concat_batches(steps)


def write_parts(path: Path, schema: pa.Schema, parts: Iterable[Part], pick: Pick = EVERYTHING) -> None:
    """The same as a file, which is a whole Arrow stream of some batches."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        for step in _steps(schema, parts, pick):
            stream.write_batch(step)


def _steps(schema: pa.Schema, parts: Iterable[Part], pick: Pick) -> Iterator[pa.RecordBatch]:
    """Each is made into columns before the next is looked at: what was read from the store just now is still near."""
    for packed, some in groupby(parts, lambda part: isinstance(part.bodies, PackedBodies)):
        if packed:
            for step in _cut(some, _packed_bytes, arrow.STEP_BYTES):
                yield from _of_packed(schema, step, pick)
        else:
            yield from _of_bodies(schema, some, pick)


def _of_packed(schema: pa.Schema, parts: Sequence[Part], pick: Pick) -> Iterator[pa.RecordBatch]:
    data: pa.Array = None
    if not _IN_BLOCKS.issuperset((*schema.names, *pick.columns)):
        data = data_of([part.bodies for part in parts if isinstance(part.bodies, PackedBodies)])
        if data is None:
            yield from _of_bodies(schema, parts, pick)
            return
        if not all(map(_whole, parts)):
            data = data.filter(arrow.joined([arrow.mask(part.live, len(part.bodies)) for part in parts], pa.bool_()))

    def column(name: str) -> pa.Array:
        if name in _IN_BLOCKS:
            return _of_blocks(parts, name)
        return data if name == "value" else pa.nulls(len(data), arrow.TEXT)

    yield _batch(schema, pick, column)


def _of_bodies(schema: pa.Schema, parts: Iterable[Part], pick: Pick) -> Iterator[pa.RecordBatch]:
    for step in _cut(parts, lambda part: part.live.bit_count(), arrow.STEP_ROWS):
        yield _step(schema, step, pick)


def _step(schema: pa.Schema, parts: Sequence[Part], pick: Pick) -> pa.RecordBatch:
    bodies: list[RecordBody] = []
    for part in parts:
        found = part.bodies.unpacked() if isinstance(part.bodies, PackedBodies) else part.bodies
        bodies += found if _whole(part) else [found[offset] for offset in offsets(part.live)]

    def column(name: str) -> pa.Array:
        if name in _IN_BLOCKS:
            return _of_blocks(parts, name)
        return pa.array([body.data for body in bodies], arrow.BYTES) if name == "value" else _texts(bodies, name)

    return _batch(schema, pick, column)


def _cut(parts: Iterable[Part], weight: Callable[[Part], int], enough: int) -> Iterator[list[Part]]:
    """In runs that weigh just enough."""
    waiting: list[Part] = []
    weighs = 0
    for part in parts:
        waiting.append(part)
        weighs += weight(part)
        if weighs >= enough:
            yield waiting
            waiting, weighs = [], 0
    if waiting:
        yield waiting


def _packed_bytes(part: Part) -> int:
    return len(part.bodies.records) if isinstance(part.bodies, PackedBodies) else 0


def of_file(
    schema: pa.Schema, where: str, table: pa.Table, masks: Sequence[tuple[int, int, int]], pick: Pick
) -> pa.RecordBatch:
    """One batch of the records of these masks (first seq, count, bits). Raises ArchiveError where one is not there."""
    wanted = arrow.counted(masks)
    seqs = table.column("seq")
    start = arrow.first_at_least(seqs, masks[0][0])
    part = table.slice(start, arrow.first_at_least(seqs, masks[-1][0] + masks[-1][1]) - start)
    if len(part) != len(wanted):  # some are gone since it was written
        part = part.filter(pc.is_in(part.column("seq"), value_set=wanted))
    if not arrow.joined(part.column("seq").chunks, arrow.NUMBER).equals(wanted):
        raise ArchiveError(f"{where} does not hold all records from {masks[0][0]} on that it should")

    def column(name: str) -> pa.Array:
        found = arrow.joined(part.column(_IN_FILES[name]).chunks, table.schema.field(_IN_FILES[name]).type)
        if name == "timestamp":
            return found.cast(arrow.TIME)
        if name == "value":
            return found.cast(arrow.BYTES)
        return arrow.texts(found.to_pylist()) if name != "offset" and pa.types.is_binary(found.type) else found

    return _batch(schema, pick, column)


def _batch(schema: pa.Schema, pick: Pick, column: Callable[[str], pa.Array]) -> pa.RecordBatch:
    made = {name: column(name) for name in dict.fromkeys((*schema.names, *pick.columns))}
    batch = pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)
    if pick.tag_prefix:
        prefix = pick.tag_prefix.decode("utf-8", "backslashreplace")
        batch, made = _filtered(batch, made, pc.fill_null(pc.starts_with(made["tag"], prefix), False))
    if pick.without_nodes:
        unwanted = arrow.texts(sorted(pick.without_nodes))
        batch, made = _filtered(batch, made, pc.invert(pc.is_in(made["node"], value_set=unwanted)))
    return batch


def _filtered(
    batch: pa.RecordBatch, made: dict[str, pa.Array], mask: pa.Array
) -> tuple[pa.RecordBatch, dict[str, pa.Array]]:
    return batch.filter(mask), {name: values.filter(mask) for name, values in made.items()}


# -- columns of parts


def _whole(part: Part) -> bool:
    return part.live == (1 << len(part.bodies)) - 1


def _of_blocks(parts: Iterable[Part], name: str) -> pa.Array:
    return _offsets(parts) if name == "offset" else _timestamps(parts)


def _offsets(parts: Iterable[Part]) -> pa.Array:
    return arrow.counted((part.first_seq, len(part.bodies), part.live) for part in parts)


def _timestamps(parts: Iterable[Part]) -> pa.Array:
    values: list[int] = []
    ends: list[int] = []
    rows = 0
    for stamp, count in _stamped(parts):
        rows += count
        if values and values[-1] == stamp:
            ends[-1] = rows
        else:
            values.append(stamp)
            ends.append(rows)
    return arrow.to_times(arrow.repeated(values, ends))


def _stamped(parts: Iterable[Part]) -> Iterator[tuple[int, int]]:
    """Times, and how many of the wanted records have them."""
    for part in parts:
        starts = part.starts
        if _whole(part) and len(starts) == 1:
            yield part.stamps[0], len(part.bodies)
            continue
        for stamp, start, end in zip(part.stamps, starts, [*starts[1:], len(part.bodies)], strict=True):
            count = (part.live >> start & ((1 << (end - start)) - 1)).bit_count()
            if count:
                yield stamp, count


def _texts(bodies: Sequence[RecordBody], name: str) -> pa.Array:
    values = _OPTIONAL[name](bodies)
    if values.count(b"") == len(values):
        return pa.nulls(len(values), arrow.TEXT)
    return arrow.texts([value or None for value in values])
