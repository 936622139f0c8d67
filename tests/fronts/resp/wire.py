"""A client that hides nothing: it sends exactly what it is told and keeps the type of every reply."""

from __future__ import annotations

import socket
from types import TracebackType


class Simple(str):
    """`+text`"""


class Failure(str):
    """`-text`"""


class NullArray:
    """`*-1`, which is not the null bulk (None)."""


Reply = Simple | Failure | int | bytes | None | NullArray | list["Reply"] | dict[bytes, "Reply"]
NULL_ARRAY = NullArray()


def encoded(*arguments: bytes | str | int) -> bytes:
    values = [argument if isinstance(argument, bytes) else str(argument).encode() for argument in arguments]
    return b"*%d\r\n" % len(values) + b"".join(b"$%d\r\n%b\r\n" % (len(value), value) for value in values)


class Wire:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __call__(self, *arguments: bytes | str | int) -> Reply:
        self.send(encoded(*arguments))
        return self.reply()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def replies(self, count: int) -> list[Reply]:
        return [self.reply() for _ in range(count)]

    def ended(self) -> bool:
        """Whether the server has closed, with nothing left to read."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True

    def silent(self, seconds: float = 0.15) -> bool:
        """Whether nothing comes for a while."""
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) == b"never"
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(20)

    def reply(self) -> Reply:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError(f"the server closed after {line!r}")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return Simple(rest.decode())
        if kind == b"-":
            return Failure(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"_":
            return None
        count = int(rest)
        if kind == b"$":
            return None if count < 0 else self._file.read(count + 2)[:-2]
        if kind == b"%":
            pairs = [(self.reply(), self.reply()) for _ in range(count)]
            return {key: value for key, value in pairs if isinstance(key, bytes)}
        assert kind == b"*", line
        return NULL_ARRAY if count < 0 else self.replies(count)


def pairs(reply: Reply) -> dict[str, Reply]:
    """A flat array of names and values, as SHOW and QSTAT answer."""
    assert isinstance(reply, list)
    names = [name.decode() for name in reply[::2] if isinstance(name, bytes)]
    return dict(zip(names, reply[1::2], strict=True))


def job_id(reply: Reply) -> str:
    assert isinstance(reply, Simple), reply
    return str(reply)
