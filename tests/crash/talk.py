"""The smallest HTTP client that can be killed in mid-sentence: one connection, one request at a time.

A connection that ends before its answer is whole raises ConnectionError: nothing was promised then.
"""

from __future__ import annotations

import asyncio
import json
from typing import TypeVar

import msgspec

Answer = TypeVar("Answer")


class Talk:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int) -> Talk:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, path: str, body: object, answer: type[Answer]) -> Answer:
        """Any status but 200 and 201 is a failure of the test."""
        sent = json.dumps(body).encode()
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(sent)}\r\n\r\n".encode()
            + sent
        )
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            length = next(int(line.split(":")[1]) for line in head if line.startswith("content-length:"))
            content = await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            raise ConnectionError from error
        assert head[0].split()[1] in ("200", "201"), f"{method} {path} was answered {head[0]}: {content.decode()}"
        return msgspec.json.decode(content, type=answer)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class Wrote(msgspec.Struct):
    seqs: list[int]
    head_seq: int
    deduped: bool


class Record(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    data: int
    tag: str | None = msgspec.field(name="$tag", default=None)
    meta: dict[str, msgspec.Raw] = {}


class Gap(msgspec.Struct):
    gap_from: int
    gap_to: int
    reason: str


class Page(msgspec.Struct):
    records: list[Record]
    next_from_seq: int
    head_seq: int
    caught_up: bool
    tombstone: Gap | None


class Claimed(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    lease_id: str
    data: int


class Claim(msgspec.Struct):
    claimed: list[Claimed]


class Acked(msgspec.Struct):
    acked: int
    skipped: list[int]


class Deleted(msgspec.Struct):
    deleted: int


class Queue(msgspec.Struct):
    ready: int
    in_flight: int


class State(msgspec.Struct):
    head_seq: int
    next_seq: int
    count: int
    config: dict[str, msgspec.Raw]
    queue: Queue | None = None


class Done(msgspec.Struct):
    """Whatever the answer says, it was a success."""


async def every_record(talk: Talk, topic: str) -> tuple[list[Record], list[Gap]]:
    """All that a reader from the start is given, and the gaps it is told of."""
    records: list[Record] = []
    gaps: list[Gap] = []
    after = 0
    while True:
        asked = {"from_seq": after, "limit": 1000, "include_tags": True}
        page = await talk.ask("POST", f"/v0/topics/{topic}/diff", asked, Page)
        records += page.records
        if page.tombstone is not None:
            gaps.append(page.tombstone)
        if page.caught_up:
            assert page.next_from_seq == page.head_seq
            return records, gaps
        assert page.next_from_seq > after, "a page that does not move on"
        after = page.next_from_seq
