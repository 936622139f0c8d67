"""Fifty connections that add, lease and ack, and a ledger of what the node has promised them.

A promise is a reply that arrived. Whatever was sent and not answered when the node died may have happened or not: the
ledger keeps those apart and expects nothing of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

import hiredis

CONNECTIONS = 50


@dataclass
class Ledger:
    """Bodies are unique, so a body names a job whether or not its id was ever told."""

    bodies: dict[bytes, bytes] = field(default_factory=dict)  # id -> body, of every job we were told of
    added: set[bytes] = field(default_factory=set)  # ids whose ADDJOB was answered
    acked: set[bytes] = field(default_factory=set)  # ids whose ACKJOB was answered
    asked: set[bytes] = field(default_factory=set)  # ids whose ACKJOB was sent
    sent: int = 0

    def check(self, found: list[tuple[bytes, bytes]]) -> None:
        """`found` are the ids and bodies that the node holds after its restart."""
        ids = [job_id for job_id, _ in found]
        bodies = [body for _, body in found]
        assert len(set(ids)) == len(ids), "an id appears twice"
        assert len(set(bodies)) == len(bodies), "a job appears twice"
        lost = self.added - self.asked - set(ids)
        assert not lost, f"{len(lost)} acknowledged jobs are lost, such as {sorted(lost)[0]!r}"
        risen = self.acked & set(ids)
        assert not risen, f"{len(risen)} acked jobs came back, such as {sorted(risen)[0]!r}"
        for job_id, body in found:
            assert self.bodies.get(job_id, body) == body, "a job has another body"


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = hiredis.Reader()

    async def ask(self, *words: bytes) -> object:
        packed = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)]
        self._writer.write(b"".join(packed))
        while (reply := self._parser.gets()) is False:
            data = await self._reader.read(65536)
            if not data:
                raise ConnectionError
            self._parser.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            raise AssertionError(f"{words[0]!r} was refused: {reply}")
        return reply


async def run(port: int, ledger: Ledger, until: asyncio.Event) -> None:
    """Works until the node dies or `until` is set."""
    await asyncio.gather(*(_work(port, ledger, until, number) for number in range(CONNECTIONS)))


async def _work(port: int, ledger: Ledger, until: asyncio.Event, number: int) -> None:
    with contextlib.suppress(ConnectionError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        connection = _Connection(reader, writer)
        try:
            while not until.is_set():
                for _ in range(3):
                    await _add(connection, ledger, number)
                for _ in range(2):
                    await _lease_and_ack(connection, ledger)
        finally:
            writer.close()
            await writer.wait_closed()


async def _add(connection: _Connection, ledger: Ledger, number: int) -> None:
    ledger.sent += 1
    body = b"job %d" % ledger.sent
    priority = b"%d" % ((number * 7919 + ledger.sent) % 5)
    job_id = await connection.ask(b"ADDJOB", b"load", body, b"0", b"PRIORITY", priority)
    assert isinstance(job_id, bytes)
    ledger.bodies[job_id] = body
    ledger.added.add(job_id)


async def _lease_and_ack(connection: _Connection, ledger: Ledger) -> None:
    jobs = await connection.ask(b"GETJOB", b"NOHANG", b"FROM", b"load")
    if not isinstance(jobs, list):
        return
    (_, job_id, body), *_ = jobs
    assert ledger.bodies.setdefault(job_id, body) == body
    assert job_id not in ledger.acked, "an acked job was delivered again"
    ledger.asked.add(job_id)
    count = await connection.ask(b"ACKJOB", job_id)
    assert count in (0, 1)
    ledger.acked.add(job_id)
