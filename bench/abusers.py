"""Clients that misbehave, one function each. `abuse` runs one in a process of its own beside a client that does not.

    python -m bench.abusers NAME RESP_PORT HTTP_PORT

It prepares, says "ready", waits for a line, and then does what its name says until it has done enough. A new one is a
generator in `ABUSERS`: what comes before its only `yield` is preparation.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

from bench import http
from bench.talk import addjob, resp

PEEKED_JOBS = 1000
PEEKS, PEEK_ROUNDS = 500, 2
PIPELINED_JOBS = 300_000
QUEUES = 200_000
QUEUES_PER_CHUNK = 500
MEMORY_LIMIT = 60 * 1024 * 1024  # of the node that is filled with queues
TAGS, TAGS_PER_WRITE = 400_000, 2000
UNREAD_SECONDS = 15.0
IDLE_SECONDS = 5.0

Abuser = Callable[[int, int], Iterator[None]]


def nobody(resp_port: int, http_port: int) -> Iterator[None]:
    """Does nothing: what the machine alone does to a PING."""
    yield
    time.sleep(IDLE_SECONDS)


def peeks(resp_port: int, http_port: int) -> Iterator[None]:
    """Pipelines commands with large replies."""
    with _connected(resp_port) as connection:
        _pipeline(connection, [addjob(b"peeked", number) for number in range(PEEKED_JOBS)])
        yield
        for _ in range(PEEK_ROUNDS):
            reading = threading.Thread(target=_read_until_ping, args=(connection,))
            reading.start()
            connection.sendall(resp(b"QPEEK", b"peeked", b"%d" % PEEKED_JOBS) * PEEKS + _LAST)
            reading.join()


def pipeline(resp_port: int, http_port: int) -> Iterator[None]:
    """Sends all its jobs at once."""
    jobs = [addjob(b"pipelined", number) for number in range(PIPELINED_JOBS)]
    with _connected(resp_port) as connection:
        yield
        _pipeline(connection, jobs)


def pipelines(resp_port: int, http_port: int) -> Iterator[None]:
    """Ten of those."""
    jobs = [addjob(b"pipelined", number) for number in range(PIPELINED_JOBS // 5)]
    connections = [_connected(resp_port) for _ in range(10)]
    yield
    threads = [threading.Thread(target=_pipeline, args=(each, jobs)) for each in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def large_50(resp_port: int, http_port: int) -> Iterator[None]:
    """Adds jobs of 50 MB."""
    yield from _large(resp_port, 50_000_000, 6)


def large_200(resp_port: int, http_port: int) -> Iterator[None]:
    """Adds jobs of 200 MB."""
    yield from _large(resp_port, 200_000_000, 3)


def _large(resp_port: int, size: int, count: int) -> Iterator[None]:
    job = resp(b"ADDJOB", b"large", b"x" * size, b"0")
    yield
    for _ in range(count):
        with _connected(resp_port) as connection:
            try:
                connection.sendall(job)
                connection.recv(200)
            except ConnectionError:
                continue  # it was refused before all of it was sent


def queues(resp_port: int, http_port: int) -> Iterator[None]:
    """Makes queues, under a memory limit."""
    with _connected(resp_port) as connection:
        connection.sendall(resp(b"CONFIG", b"SET", b"maxmemory", b"%d" % MEMORY_LIMIT))
        connection.recv(200)
        yield
        for first in range(0, QUEUES, QUEUES_PER_CHUNK):
            _pipeline(
                connection, [addjob(b"queue-%d" % number, 0) for number in range(first, first + QUEUES_PER_CHUNK)]
            )


def tags(resp_port: int, http_port: int) -> Iterator[None]:
    """Deletes many tags by a prefix."""
    for first in range(0, TAGS, TAGS_PER_WRITE):
        records = [{"data": 1, "tag": f"tag-{number * 7919 % TAGS}"} for number in range(first, first + TAGS_PER_WRITE)]
        http.call(http_port, "POST", "/v0/topics/tagged", {"records": records})
    yield
    http.call(http_port, "POST", "/v0/topics/tagged/delete", {"match": "tag-*"})


def unread(resp_port: int, http_port: int) -> Iterator[None]:
    """Asks on and on, and never reads a reply."""
    with _connected(resp_port) as connection:
        _pipeline(connection, [addjob(b"unread", number) for number in range(PEEKED_JOBS)])
        yield
        connection.settimeout(1)
        deadline = time.monotonic() + UNREAD_SECONDS
        while time.monotonic() < deadline:
            try:
                connection.sendall(resp(b"QPEEK", b"unread", b"%d" % PEEKED_JOBS) * PEEKS)
            except TimeoutError:
                continue
            except ConnectionError:
                return  # it was cut


ABUSERS: dict[str, Abuser] = {
    "nobody": nobody,
    "peeks": peeks,
    "pipeline": pipeline,
    "pipelines": pipelines,
    "large-50": large_50,
    "large-200": large_200,
    "queues": queues,
    "tags": tags,
    "unread": unread,
}

_LAST = resp(b"PING", b"the-last-one")
_ANSWER = b"the-last-one\r\n"


def _connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=120)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _pipeline(connection: socket.socket, commands: list[bytes]) -> None:
    """Sends them as one, and reads the replies meanwhile."""
    reading = threading.Thread(target=_read_until_ping, args=(connection,))
    reading.start()
    connection.sendall(b"".join(commands) + _LAST)
    reading.join()


def _read_until_ping(connection: socket.socket) -> None:
    tail = b""
    while not tail.endswith(_ANSWER):
        data = connection.recv(1 << 20)
        if not data:
            raise ConnectionError("the node has closed the connection")
        tail = (tail + data)[-len(_ANSWER) :]


def main() -> None:
    name, resp_port, http_port = sys.argv[1:]
    abuse = ABUSERS[name](int(resp_port), int(http_port))
    next(abuse)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for _ in abuse:
        raise AssertionError(f"{name} yields more than once")


if __name__ == "__main__":
    main()
