"""Records of a log as a file: what readers of the topic would have got of these seqs when the file was written.

Columns: seq, ts, node, tag, meta, data; in order of seq. `data` and `meta` are the JSON texts as they were written; an
absent node, tag or meta is null. A column with bytes that are not UTF-8 is binary in that file. Records that were gone
already are not in it; those that go later stay in the file, and the log knows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from esker.archive.parquet import FileReader, FileWriter, Kind, Sealed, kind_of
from esker.checksums import FOOTER_KEY
from esker.engine.logs.block import Content, offsets
from esker.engine.replies import Record
from esker.errors import ArchiveError

FORMAT = 2
"""Format 1 has no checksum in its footer."""
_READABLE = ("1", "2")


class RecordsPlace(NamedTuple):
    """Which records a file holds: those of `topic`, in its epoch `number`, from `first` to `last`."""

    topic: bytes
    number: int
    partition: int
    first: int
    last: int

    def footer(self) -> dict[str, str]:
        return {
            "esker.format": str(FORMAT),
            "esker.topic": self.topic.decode("utf-8", "backslashreplace"),
            "esker.topic_number": str(self.number),
            "esker.partition": str(self.partition),
            "esker.first_seq": str(self.first),
            "esker.last_seq": str(self.last),
        }


class Stored(NamedTuple):
    """A block: its first seq, the mask of its living records, and all of them."""

    first_seq: int
    live: int
    content: Content


def encode_records(place: RecordsPlace, blocks: Iterable[Stored]) -> Sealed:
    """Runs in a thread; holds the records of the whole file in memory."""
    seqs: list[int] = []
    times: list[int] = []
    nodes: list[bytes | None] = []
    tags: list[bytes | None] = []
    metas: list[bytes | None] = []
    datas: list[bytes] = []
    for first_seq, live, content in blocks:
        for offset in offsets(live):
            body = content.bodies[offset]
            seqs.append(first_seq + offset)
            times.append(content.ts(offset))
            nodes.append(body.node or None)
            tags.append(body.tag or None)
            metas.append(body.meta or None)
            datas.append(body.data)
    kinds = {
        "seq": Kind.NUMBER,
        "ts": Kind.TIME,
        "node": kind_of(nodes),
        "tag": kind_of(tags),
        "meta": kind_of(metas),
        "data": kind_of(datas),
    }
    writer = FileWriter(kinds, sorted_by=["seq"])
    writer.add({"seq": seqs, "ts": times, "node": nodes, "tag": tags, "meta": metas, "data": datas})
    return writer.finish(place.footer())


class RecordsFile:
    """A file that was read whole. Its rows become records when they are asked for."""

    def __init__(self, name: str, data: bytes, sha256: str = "") -> None:
        """Raises ArchiveError when it is damaged. `sha256`: its checksum, where that is known."""
        self._name = name
        self._file = FileReader(name, data, sha256)
        told = self._file.footer.get("esker.format", "none")
        if told not in _READABLE:
            raise ArchiveError(f"{name} has format {told}; this version of Esker knows up to {FORMAT}")
        if told == str(FORMAT) and FOOTER_KEY not in self._file.footer:
            raise ArchiveError(f"{name}: it is damaged: its checksum is missing; put it back from a backup")
        self.footer = self._file.footer
        self.size = self._file.size

    @property
    def columns(self) -> object:
        """A table of Arrow, for `esker.columns.records`."""
        return self._file.table

    def records(self, first: int, count: int) -> list[Record]:
        """The `count` records in a row from seq `first` on. Raises ArchiveError when one is not there."""
        file = self._file
        start = file.find("seq", first)
        seqs = file.numbers("seq", start, count)
        if seqs != list(range(first, first + count)):
            raise ArchiveError(f"{self._name} does not hold all records from {first} to {first + count - 1}")
        columns: Sequence[list[bytes | None]] = [
            file.texts(name, start, count) for name in ("data", "node", "tag", "meta")
        ]
        return [
            Record(seq, ts, data or b"", node or b"", tag or b"", meta or b"")
            for seq, ts, data, node, tag, meta in zip(seqs, file.numbers("ts", start, count), *columns, strict=True)
        ]
