"""Sockets that the Redis front polls by itself keep what transports promise."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from esker.fronts.listening import listen
from esker.fronts.resp import poller as poller_module
from esker.fronts.resp.poller import READ_BYTES_MAX, Poller, Socket

LARGE = bytes(range(256)) * 64 * 1024  # 16 MiB: more than a socket's buffers hold


class Client(asyncio.Protocol):
    """The server's end of a connection: notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.error: Exception | None = None
        self.ended = asyncio.Event()
        self.lost = asyncio.Event()
        self.stays = False  # after the other side has ended
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Socket)
        self.transport = transport

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")

    def eof_received(self) -> bool:
        self.heard.append("end")
        self.ended.set()
        return self.stays

    def connection_lost(self, error: Exception | None) -> None:
        self.heard.append("lost")
        self.error = error
        self.lost.set()


class Scene:
    """A poller with its clients, and the other ends of their connections."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.clients: list[Client] = []
        self.arrived: list[tuple[Client, bytes]] = []
        self.turns = 0
        self.came = asyncio.Event()
        self.poller = Poller(self._made, self.arrived, self._turn)
        self.port = 0

    def _made(self) -> Client:
        self.clients.append(Client())
        self.came.set()
        return self.clients[-1]

    def _turn(self) -> None:
        self.turns += 1
        self.came.set()

    async def start(self) -> None:
        for listening in await listen("127.0.0.1", 0, 16):
            self.poller.listen(listening)
        self.port = self.poller.port

    async def connect(self) -> tuple[Client, socket.socket]:
        other = socket.socket()
        other.setblocking(False)
        known = len(self.clients)
        await self.loop.sock_connect(other, ("127.0.0.1", self.port))
        while len(self.clients) == known:
            self.came.clear()
            await asyncio.wait_for(self.came.wait(), 10)
        return self.clients[-1], other

    async def received(self, size: int) -> bytes:
        """What clients have sent, once it is so much."""
        while sum(len(data) for _, data in self.arrived) < size:
            self.came.clear()
            await asyncio.wait_for(self.came.wait(), 10)
        return b"".join(data for _, data in self.arrived)

    async def take(self, other: socket.socket, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0 and (part := await asyncio.wait_for(self.loop.sock_recv(other, 1 << 20), 10)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _play(scene: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        stage = Scene()
        await stage.start()
        try:
            await scene(stage)
        finally:
            stage.poller.close()
            await asyncio.sleep(0)  # in which the last of them is let go

    uvloop.run(asyncio.wait_for(run(), 60))


def test_what_the_kernel_does_not_take_is_sent_later_and_in_order() -> None:
    async def scene(stage: Scene) -> None:
        client, other = await stage.connect()
        client.transport.write(LARGE)
        client.transport.write(b"last")
        assert client.transport.get_write_buffer_size() > 0
        assert await stage.take(other, len(LARGE) + 4) == LARGE + b"last"
        client.transport.write(b"!")
        assert await stage.take(other, 1) == b"!"
        assert client.transport.get_write_buffer_size() == 0
        other.close()

    _play(scene)


def test_writers_are_told_when_too_much_waits_and_when_it_is_less() -> None:
    async def scene(stage: Scene) -> None:
        client, other = await stage.connect()
        client.transport.set_write_buffer_limits(high=1 << 20)
        client.transport.write(LARGE)
        client.transport.write(LARGE)
        assert client.heard == ["pause"]
        await stage.take(other, 2 * len(LARGE))
        assert client.heard == ["pause", "resume"]
        other.close()

    _play(scene)


def test_a_connection_that_closes_sends_what_it_owes_first() -> None:
    async def scene(stage: Scene) -> None:
        client, other = await stage.connect()
        client.transport.write(LARGE)
        client.transport.close()
        client.transport.write(b"too late")
        assert not client.lost.is_set()
        assert await stage.take(other, len(LARGE) + 1) == LARGE
        await asyncio.wait_for(client.lost.wait(), 10)
        assert client.error is None
        other.close()

    _play(scene)


def test_a_connection_that_is_aborted_ends_at_once() -> None:
    async def scene(stage: Scene) -> None:
        client, other = await stage.connect()
        client.transport.write(LARGE)
        client.transport.abort()
        client.transport.abort()
        await asyncio.wait_for(client.lost.wait(), 10)
        assert client.heard.count("lost") == 1
        other.close()

    _play(scene)


def test_more_than_a_turn_takes_arrives_whole() -> None:
    async def scene(stage: Scene) -> None:
        _, other = await stage.connect()
        sent = asyncio.create_task(stage.loop.sock_sendall(other, LARGE))
        assert await stage.received(len(LARGE)) == LARGE
        await sent
        assert max(len(data) for _, data in stage.arrived) <= READ_BYTES_MAX
        other.close()

    _play(scene)


def test_a_client_that_has_ended_its_half_is_still_answered() -> None:
    async def scene(stage: Scene) -> None:
        client, other = await stage.connect()
        client.stays = True
        await stage.loop.sock_sendall(other, b"ask")
        other.shutdown(socket.SHUT_WR)
        assert await stage.received(3) == b"ask"
        await asyncio.wait_for(client.ended.wait(), 10)
        client.transport.write(b"answer")
        assert await stage.take(other, 6) == b"answer"
        client.transport.close()
        await asyncio.wait_for(client.lost.wait(), 10)
        other.close()

    _play(scene)


def test_a_client_that_ends_and_is_owed_nothing_is_let_go() -> None:
    async def scene(stage: Scene) -> None:
        client, other = await stage.connect()
        other.close()
        await asyncio.wait_for(client.lost.wait(), 10)
        assert client.heard == ["end", "lost"]

    _play(scene)


@pytest.mark.parametrize("reading", [True, False])
def test_a_client_that_vanishes_is_noticed_whether_or_not_it_is_read(reading: bool) -> None:
    async def scene(stage: Scene) -> None:
        client, other = await stage.connect()
        if not reading:
            client.transport.pause_reading()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # its end is a reset
        other.close()
        await asyncio.wait_for(client.lost.wait(), 10)
        assert isinstance(client.error, OSError)
        assert client.error.errno == errno.ECONNRESET
        turns = stage.turns
        for _ in range(10):
            await asyncio.sleep(0)
        assert stage.turns == turns, "nothing is left that would wake the loop"

    _play(scene)


def test_a_client_that_is_not_read_waits_and_loses_nothing() -> None:
    async def scene(stage: Scene) -> None:
        client, other = await stage.connect()
        client.transport.pause_reading()
        await stage.loop.sock_sendall(other, b"patience")
        for _ in range(20):
            await asyncio.sleep(0)
        assert stage.arrived == []
        client.transport.resume_reading()
        assert await stage.received(8) == b"patience"
        other.close()

    _play(scene)


def test_a_connection_that_has_ended_cannot_disturb_the_next_one_with_its_descriptor() -> None:
    async def scene(stage: Scene) -> None:
        first, other = await stage.connect()
        assert isinstance(first.transport, Socket)
        old = first.transport.fd
        first.transport.abort()
        await asyncio.wait_for(first.lost.wait(), 10)
        other.close()
        others = []
        while True:
            second, far = await stage.connect()
            others.append(far)
            assert isinstance(second.transport, Socket)
            if second.transport.fd == old:
                break
        first.transport.pause_reading()
        first.transport.abort()
        await stage.loop.sock_sendall(others[-1], b"here")
        assert await stage.received(4) == b"here"
        for far in others:
            far.close()

    _play(scene)


def test_too_many_open_files_only_delay_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller_module, "_NO_FILES_S", 0.01)

    class Crowded(socket.socket):
        refusals = 2

        def accept(self) -> tuple[socket.socket, object]:
            if self.refusals:
                self.refusals -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    async def scene(stage: Scene) -> None:
        stage.poller.stop_listening()
        (bound,) = await listen("127.0.0.1", 0, 16)
        crowded = Crowded(fileno=bound.detach())
        crowded.setblocking(False)
        stage.poller.listen(crowded)
        stage.port = stage.poller.port
        client, other = await stage.connect()
        client.transport.write(b"welcome")
        assert await stage.take(other, 7) == b"welcome"
        assert crowded.refusals == 0
        other.close()

    _play(scene)


def test_a_name_with_several_addresses_is_listened_to_on_one_port() -> None:
    async def run() -> None:
        found = await listen("localhost", 0, 16)
        ports = {each.getsockname()[1] for each in found}
        assert len(ports) == 1
        for each in found:
            each.close()

    uvloop.run(run())


def test_an_address_of_another_machine_is_refused() -> None:
    async def run() -> None:
        with pytest.raises(OSError, match="assign requested address"):
            await listen("192.0.2.1", 0, 16)

    uvloop.run(run())
