"""Records: write, read on from a seq, delete."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from esker.engine import limits
from esker.engine.commands import DeleteMore, DeleteRecords, Read
from esker.engine.config import TopicType
from esker.engine.replies import Deleted, Records, Written
from esker.fronts.http.answers import RecordsDeletedAnswer, encode
from esker.fronts.http.bodies import IDEMPOTENCY_KEY_BYTES_MAX, DeleteBody, DiffBody, PlainWriteBody, WriteBody
from esker.fronts.http.calls import Answer, Call, ClientLeft
from esker.fronts.http.endpoints.bulk import read_block
from esker.fronts.http.endpoints.topics import named_topic
from esker.fronts.http.errors import expect, invalid
from esker.fronts.http.fragments import Shape, record_text
from esker.fronts.http.queries import Matched, Switch
from esker.fronts.http.reading import batch_bytes, diff_body, record_limit, to_nodes
from esker.fronts.http.selectors import to_tags
from esker.fronts.http.streams.columns import accepts_arrow
from esker.fronts.http.turns import LARGE_BYTES
from esker.fronts.http.writing import to_append, written_answer

WAIT_MS_MAX = 30_000
IDEMPOTENCY_KEY: Final = Matched(
    "Idempotency-Key", "the same as in the body, which wins", bytes_max=IDEMPOTENCY_KEY_BYTES_MAX
)
_IDEMPOTENCY_HEADER: Final = IDEMPOTENCY_KEY.name.lower().encode()
RETURN_SEQS: Final = Switch("return_seqs", "list every seq", default=True)

_plain_write_decoder = msgspec.json.Decoder(PlainWriteBody)
_any_write_decoder = msgspec.json.Decoder(WriteBody)
_diff_decoder = msgspec.json.Decoder(DiffBody)
_delete_decoder = msgspec.json.Decoder(DeleteBody)


class _WriteDecoder:
    """Most writes are plain; one that is not shows it at its first record that is not, and is decoded again."""

    def decode(self, body: bytes, /) -> WriteBody | PlainWriteBody:
        try:
            return _plain_write_decoder.decode(body)
        except msgspec.ValidationError:
            return _any_write_decoder.decode(body)


_write_decoder = _WriteDecoder()


async def write_records(call: Call) -> Answer:
    name = named_topic(call)
    body = await call.json(_write_decoder)
    append = to_append(call, name, body, call.header(_IDEMPOTENCY_HEADER))
    written = expect(Written, call.front.broker.handle(append), name)
    answer = written_answer(name.decode(), written, RETURN_SEQS.read(call))
    return Answer(encode(answer), status=201 if written.created else 200, topic=name)


async def read_diff(call: Call) -> Answer:
    name = named_topic(call)
    body = await call.json(_diff_decoder, empty=b"{}")
    columns = accepts_arrow(call, asked=True)
    if columns and not body.wait_ms:
        return await read_block(call, name, body)
    command = Read(
        name, body.from_seq, record_limit(body.limit), batch_bytes(body.max_batch_bytes), to_nodes(body.node), True
    )
    read = expect(Records, call.front.broker.handle(command), name)
    if read.archived is not None:
        command = msgspec.structs.replace(command, spans=False)
        read = expect(Records, await call.front.broker.read(command), name)
    scanned = read.scanned
    if body.wait_ms and _nothing_new(read):
        read, scanned = await _wait(call, command, read, min(body.wait_ms, WAIT_MS_MAX))
    if columns:
        return await read_block(call, name, body)
    if _is_large(read) and await call.front.turns.take() and read.spans is not None:
        read = expect(Records, await call.front.broker.read(msgspec.structs.replace(command, spans=False)), name)
    shape = Shape(tags=body.include_tags, meta=body.include_meta)
    if read.spans is not None:
        texts = call.front.fragments.parts(read.spans, shape)
    else:
        config = call.front.broker.config_of(name)
        jobs = config is not None and config.type == TopicType.QUEUE
        texts = [b",".join([record_text(record, shape, jobs) for record in read.records])]
    return Answer(diff_body(name.decode(), read, texts), scanned=scanned, files_read=read.files_read)


def _is_large(read: Records) -> bool:
    """Nearly: of the records of a log, which lie in blocks of some 64 KiB, only the last of each is looked at."""
    spans = read.spans
    if spans is None:
        return sum(len(record.data) for record in read.records) > LARGE_BYTES
    sizes = sum([len(span.content.bodies[span.stop - 1].data) for span in spans])
    return sizes > LARGE_BYTES or len(spans) * limits.BLOCK_BYTES_MAX > LARGE_BYTES


def _nothing_new(read: Records) -> bool:
    return not read.records and not read.spans and read.tombstone is None and read.next_from_seq >= read.head_seq


async def _wait(call: Call, command: Read, read: Records, wait_ms: int) -> tuple[Records, int]:
    """Reads again when something was written, until there is something to tell, or the time is up."""
    broker = call.front.broker
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    changed = asyncio.Event()
    watcher = broker.watch([command.topic], changed.set)
    gone = asyncio.ensure_future(call.left())
    stopping = asyncio.ensure_future(call.front.stopping.wait())
    scanned = read.scanned
    try:
        while _nothing_new(read) and loop.time() < deadline and not stopping.done():
            change = asyncio.ensure_future(changed.wait())
            await asyncio.wait(
                (change, gone, stopping), timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED
            )
            change.cancel()
            if gone.done():
                raise ClientLeft("the client left while it waited for records")
            if changed.is_set():
                changed.clear()
                command = msgspec.structs.replace(command, after=read.next_from_seq, spans=False)
                read = expect(Records, await broker.read(command), command.topic)
                scanned += read.scanned
    finally:
        watcher.cancel()
        gone.cancel()
        stopping.cancel()
    return read, scanned


async def delete_records(call: Call) -> Answer:
    name = named_topic(call)
    body = await call.json(_delete_decoder)
    if body.before_seq is None and body.match is None:
        raise invalid("before_seq or match is needed")
    before_seq = None if body.before_seq is None else min(body.before_seq, limits.SEQ_MAX)
    tags = None if body.match is None else to_tags(body.match, "match")
    command = DeleteRecords(name, before_seq, None if tags is None else tags.tag, tags is not None and tags.prefix)
    deleted = expect(Deleted, call.front.broker.handle(command), name)
    while deleted.rest is not None:
        await asyncio.sleep(0)  # others have their turn
        deleted = expect(Deleted, call.front.broker.handle(DeleteMore(name, deleted.rest)), name)
    answer = RecordsDeletedAnswer(
        name.decode(), deleted.deleted, deleted.earliest_seq, deleted.head_seq, deleted.count, deleted.bytes
    )
    return Answer(encode(answer), topic=name)
