"""Clients without sockets: what arrives in one turn of the loop is then exactly what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from esker.fronts.resp.connection import Connection
from esker.fronts.resp.server import RespServer
from esker.node.runtime import Node
from esker.node.settings import Settings


class Recorder(asyncio.Transport):
    """The client's end: keeps what was written, and tells when enough has come."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: list[bytes] = []
        self.reading = True
        self.closed = False
        self.on_write: Callable[[], None] | None = None
        self._closing = asyncio.Event()
        self._enough: tuple[int, asyncio.Future[None]] | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.replies += bytes(data).splitlines()
        if self.on_write is not None:
            self.on_write()
        if self._enough is not None and len(self.replies) >= self._enough[0] and not self._enough[1].done():
            self._enough[1].set_result(None)

    async def wait_for(self, count: int) -> list[bytes]:
        if len(self.replies) < count:
            self._enough = (count, asyncio.get_running_loop().create_future())
            await asyncio.wait_for(self._enough[1], 10)
        return self.replies

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered here."""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True
        self._closing.set()

    async def ended(self) -> None:
        await asyncio.wait_for(self._closing.wait(), 10)


Client = tuple[Connection, Recorder]


def with_clients(tmp_path: Path, count: int, scene: Callable[[list[Client]], Awaitable[None]]) -> None:
    async def run() -> None:
        node = Node(Settings(data=str(tmp_path / "data")))
        server = RespServer(node)
        clients: list[Client] = []
        for _ in range(count):
            connection, transport = Connection(server), Recorder()
            connection.connection_made(transport)
            clients.append((connection, transport))
        await scene(clients)
        for connection, _ in clients:
            connection.connection_lost(None)
        await node.close()

    uvloop.run(run())
