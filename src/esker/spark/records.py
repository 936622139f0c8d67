# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""The records of a slice: from files of the archive where the task can read them, else from the broker.

All give the same columns with the same bytes, so it does not matter which was asked. A stream that is cut goes on
behind the last record that came.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from esker.spark.client import ArrowBytes, Cut, client, name_in_path
from esker.spark.cold import FileGone, plain_text, reachable, read_file
from esker.spark.errors import DataLoss, EskerSparkError, Refused, Unreachable
from esker.spark.handed import NotHanded, ask_file, batches_in, within_reach
from esker.spark.options import ReadOptions
from esker.spark.plan import ColdFile, Gap, Slice, data_loss

_log = logging.getLogger("esker.spark")

_IN_FILES: Final = {"offset": "seq", "timestamp": "ts", "value": "data", "tag": "tag", "node": "node", "meta": "meta"}
_MICROS = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a slice: of a file, or of the broker where `file` is None."""

    low: int
    high: int
    file: ColdFile | None


def read_records(part: Slice, columns: Sequence[str], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Batches with the broker's columns, `offset` among them, in order. Runs in a task."""
    direct = reachable(part.archive, part.node, options.direct)
    source = _Broker(part, columns, options)
    for piece in pieces(part, direct):
        if piece.file is None:
            yield from source.read(piece.low, piece.high)
            continue
        done = piece.low
        try:
            for batch in _from_file(part, piece, columns, options):
                done = batch.column("offset")[-1].as_py() + 1
                yield batch
        except FileGone:
            yield from source.read(done, piece.high)


def pieces(part: Slice, direct: bool) -> Iterator[Piece]:
    """What lies between files is the broker's to tell: it knows what was deleted there, and what was lost."""
    at = part.start
    for file in sorted(part.files, key=lambda file: file.first) if direct else ():
        low, high = max(at, file.first), min(part.end, file.last + 1)
        if low >= high:
            continue
        if at < low:
            yield Piece(at, low, None)
        yield Piece(low, high, file)
        at = high
    if at < part.end:
        yield Piece(at, part.end, None)


def batches_of(stream: ArrowBytes) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow stream. Raises Cut when it ends too early."""
    try:
        with pa.ipc.open_stream(stream) as reader:
            for batch in reader:
                if batch.num_rows:
                    yield batch
    except (pa.ArrowException, OSError) as error:
        raise Cut(" ".join(str(error).split())) from None
    stream.check_end()


class _Broker:
    """What the broker has of a slice: as files where this process is on its machine, else as a stream."""

    def __init__(self, part: Slice, columns: Sequence[str], options: ReadOptions) -> None:
        self._part = part
        self._client = client(options.connection)
        self._path = f"/v0/topics/{name_in_path(part.topic)}/records"
        self._files = within_reach(part.spool, options.direct)
        self._query = {
            "epoch": part.epoch, "columns": ",".join(columns), "tag_prefix": options.tag_prefix,
            "since_ms": options.since_ms, "until_ms": options.until_ms,
            "on_gap": "fail" if options.fail_on_data_loss else "skip",
        }  # fmt: skip

    def read(self, low: int, high: int) -> Iterator[pa.RecordBatch]:
        try:
            while low < high and self._files:
                try:
                    answer = ask_file(self._client, f"{self._path}/file", {"from": low, "to": high, **self._query})
                    if answer["path"] is not None:
                        yield from batches_in(answer["path"])
                except NotHanded as problem:
                    _log.info("topic %r from %d on is streamed: %s", self._part.topic, low, problem)
                    self._files = False
                else:
                    self._warn_of_gaps(answer["gaps"])
                    low = int(str(answer["next"]))
            yield from self._streamed(low, high)
        except Refused as refused:
            raise _explained(refused, self._part) from None

    def _streamed(self, low: int, high: int) -> Iterator[pa.RecordBatch]:
        patience = self._client.retrying()
        while low < high:
            try:
                with self._client.stream(self._path, {"from": low, "to": high, **self._query}) as stream:
                    self._warn_of_gaps(stream.headers.get("esker-gaps"))
                    for batch in batches_of(stream):
                        low = batch.column("offset")[-1].as_py() + 1
                        yield batch
                        patience.renew()  # after the yield: what Spark takes for a batch is no time of ours
                return
            except Cut as cut:
                if not patience.pause():
                    raise Unreachable(
                        f"topic {self._part.topic!r}: the stream was cut at offset {low} and could not be resumed "
                        f"({cut})"
                    ) from None

    def _warn_of_gaps(self, gaps: object) -> None:
        if gaps:
            part = self._part
            _log.warning(
                "topic %r, partition %d: passed over records that are gone: %s", part.topic, part.partition, gaps
            )


def _from_file(part: Slice, piece: Piece, columns: Sequence[str], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    assert piece.file is not None
    assert part.archive is not None
    needed = list(columns)
    if options.tag_prefix is not None and "tag" not in needed:
        needed.append("tag")
    if (options.since_ms is not None or options.until_ms is not None) and "timestamp" not in needed:
        needed.append("timestamp")
    stored = [_IN_FILES[name] for name in needed]
    for batch in read_file(part.archive, piece.file, "seq", piece.low, piece.high, stored):
        made = {name: _column(batch, name) for name in needed}
        found = pa.RecordBatch.from_arrays(list(made.values()), names=list(made))
        found = _narrowed(found, options).select(list(columns))
        if found.num_rows:
            yield found


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(_IN_FILES[name])
    if name == "timestamp":
        return column.cast(_MICROS)
    if name == "value":
        return column.cast(pa.binary())
    return column if name == "offset" else plain_text(column)


def _narrowed(batch: pa.RecordBatch, options: ReadOptions) -> pa.RecordBatch:
    """As the broker narrows by these options: from `since` on, before `until`."""
    if options.tag_prefix is not None:
        batch = batch.filter(pc.fill_null(pc.starts_with(batch.column("tag"), options.tag_prefix), False))
    if options.since_ms is not None:
        batch = batch.filter(pc.greater_equal(batch.column("timestamp"), pa.scalar(options.since_ms * 1000, _MICROS)))
    if options.until_ms is not None:
        batch = batch.filter(pc.less(batch.column("timestamp"), pa.scalar(options.until_ms * 1000, _MICROS)))
    return batch


def _explained(refused: Refused, part: Slice) -> EskerSparkError:
    if refused.code == "data_loss":
        try:
            gaps = [Gap(int(gap["first"]), int(gap["last"]), str(gap["reason"])) for gap in _gaps(refused)]
        except (KeyError, TypeError, ValueError):
            return DataLoss(f"topic {part.topic!r}: {refused}")
        return data_loss(part.topic, part.partition, gaps)
    if refused.code == "stale_epoch":
        return EskerSparkError(
            f"topic {part.topic!r} was deleted and made again: the offsets are of epoch {part.epoch}; "
            "start a new query with a new checkpoint"
        )
    return refused


def _gaps(refused: Refused) -> list[dict[str, int | str]]:
    gaps = refused.detail.get("gaps")
    return json.loads(gaps) if isinstance(gaps, str) else list(gaps) if isinstance(gaps, list) else []
