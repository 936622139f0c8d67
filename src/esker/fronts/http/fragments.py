"""Records as the JSON texts that clients get, made once for all who read them.

A record never changes, so neither does its text. Most readers of a log pass over the same records, each at its own pace
and in pages of its own size: so texts are kept by block, with the place where each record ends, and a page is cut out
of a few of them. The blocks that were read last stay, within `KEPT_BYTES`.

`data` and `meta` are JSON already and pass through as they were written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

from esker.engine.commands import NewRecord
from esker.engine.replies import Record, Span
from esker.fronts.http.payloads import of_job, text

KEPT_BYTES: Final = 32 << 20
_WORTHWHILE: Final = 4  # a block is kept when at least one in so many of its records is asked for

_encode = msgspec.json.Encoder().encode


class Shape(NamedTuple):
    """What a client wants to see of a record beyond its seq, time and node."""

    data: bool = True
    tags: bool = False
    meta: bool = True


class _Kept(NamedTuple):
    """The texts of a block, with a comma behind each, and where each ends behind its comma."""

    joined: bytes
    ends: list[int]


class Fragments:
    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[int, int, Shape], _Kept] = OrderedDict()
        self._size = 0

    def parts(self, spans: Iterable[Span], shape: Shape) -> list[bytes]:
        """The texts of all records, with commas between them, in some pieces."""
        parts = [self._part(span, shape) for span in spans]
        if parts:
            parts[-1] = parts[-1][:-1]
        return parts

    def _part(self, span: Span, shape: Shape) -> bytes:
        """With a comma behind each."""
        key = span.topic, span.first_seq, shape
        kept = self._blocks.get(key)
        if kept is None:
            if not span.full or (span.stop - span.start) * _WORTHWHILE < len(span.content.bodies):
                return b"".join(_texts(span, shape))
            kept = self._keep(key, span._replace(start=0, stop=len(span.content.bodies)))
        else:
            self._blocks.move_to_end(key)
        return kept.joined[kept.ends[span.start - 1] if span.start else 0 : kept.ends[span.stop - 1]]

    def _keep(self, key: tuple[int, int, Shape], whole: Span) -> _Kept:
        texts = list(_texts(whole, key[2]))
        kept = self._blocks[key] = _Kept(b"".join(texts), list(accumulate(map(len, texts))))
        self._size += len(kept.joined)
        while self._size > KEPT_BYTES and len(self._blocks) > 1:
            self._size -= len(self._blocks.popitem(last=False)[1].joined)
        return kept


def _texts(span: Span, shape: Shape) -> Iterator[bytes]:
    for ts, start, stop in span.moments():
        plain = b',"$ts":%d,"data":' % ts
        for seq, body in enumerate(span.content.bodies[start:stop], span.first_seq + start):
            if shape.data and not (body.node or body.tag or body.meta):
                yield b'{"$seq":%d%b%b},' % (seq, plain, body.data)
            else:
                yield _text(seq, ts, body, shape) + b","


def record_text(record: Record, shape: Shape, jobs: bool) -> bytes:
    """Of one record. `jobs`: it comes from a queue, where the payload may be anything."""
    return _text(record.seq, record.ts, record, shape, of_job(record.data) if jobs else None)


def _text(seq: int, ts: int, record: Record | NewRecord, shape: Shape, data: bytes | None = None) -> bytes:
    parts = [b'{"$seq":%d,"$ts":%d' % (seq, ts)]
    if record.node:
        parts.append(b',"$node":' + _encode(text(record.node)))
    if record.tag and shape.tags:
        parts.append(b',"$tag":' + _encode(text(record.tag)))
    if record.meta and shape.meta:
        parts.append(b',"meta":' + record.meta)
    if shape.data:
        parts.append(b',"data":' + (record.data if data is None else data))
    parts.append(b"}")
    return b"".join(parts)
