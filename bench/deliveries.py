"""From write to delivery: one writer, many watchers on connections of their own, in one process and one epoll loop.

A round is one write: the clock starts before it is sent and is read whenever a watcher has it. The next write waits
until all have it and the writer has its answer, so nobody queues behind an earlier round. The loop runs in a process of
its own, as load.py's does, and is the same for both peers; with many watchers much of the delay is its own.
"""

from __future__ import annotations

import gc
import resource
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench import http
from bench.figures import Run, latency_of
from bench.jetstream import CONNECT, publish
from bench.load import LoadFailed
from bench.talk import payload

GRACE_SECONDS = 60
RECEIVE_BYTES = 1 << 16
FIRST = 100_000_000  # numbers of one length, found in a delivery by their digits
PREPARING = 5  # writes before those that count


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    peer: str  # esker or jetstream
    port: int
    topic: str
    watchers: int
    writes: int


class Watch(msgspec.Struct):
    """Open connections, and how the peer is written to."""

    watchers: list[socket.socket]
    writer: socket.socket
    peer: str
    topic: bytes

    def request(self, number: int) -> bytes:
        if self.peer == "esker":
            return http.post(b"/v0/topics/%b?return_seqs=false" % self.topic, http.records(number, 1))
        return publish(self.topic, b"_INBOX.writer", payload(number))

    def answered(self, answer: bytes) -> bool:
        return http.complete(answer) if self.peer == "esker" else b'"seq":' in answer and b"}\r\n" in answer


def run(plan: Plan) -> Run:
    """Runs the loop in a process of its own."""
    command = [sys.executable, "-m", "bench.deliveries", msgspec.json.encode(plan).decode()]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=GRACE_SECONDS * 2, cwd=Path(__file__).resolve().parents[1], check=True
        )
    except subprocess.CalledProcessError as failure:
        raise LoadFailed(f"{plan.watchers} watchers of {plan.peer}: {failure.stderr.decode()[-2000:]}") from failure
    except subprocess.TimeoutExpired as late:
        raise LoadFailed(f"{plan.watchers} watchers of {plan.peer} did not end") from late
    return msgspec.json.decode(done.stdout, type=Run)


def drive(plan: Plan) -> Run:
    files = plan.watchers + 100
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(files, 1024), hard), hard))
    watch = _watch_esker(plan) if plan.peer == "esker" else _watch_jetstream(plan)
    gc.disable()
    _rounds(watch, FIRST, PREPARING)
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    delays = _rounds(watch, FIRST + PREPARING, plan.writes)
    elapsed = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    for connection in (*watch.watchers, watch.writer):
        connection.close()
    return Run(len(delays), elapsed, latency_of(delays), busy / elapsed)


def _rounds(watch: Watch, first: int, writes: int) -> list[float]:
    clock = time.perf_counter
    poller = select.epoll()
    sockets = {connection.fileno(): connection for connection in (*watch.watchers, watch.writer)}
    for connection in sockets.values():
        poller.register(connection, select.EPOLLIN)
    writer = watch.writer.fileno()
    delays: list[float] = []
    for number in range(first, first + writes):
        mark = b"%018d" % number
        request = watch.request(number)
        parts = dict.fromkeys(sockets, b"")  # of those who wait
        began = clock()
        watch.writer.sendall(request)
        while parts:
            ready = poller.poll(GRACE_SECONDS)
            if not ready:
                raise TimeoutError(f"{len(parts)} of {len(sockets)} did not hear of a write within {GRACE_SECONDS} s")
            for place, _ in ready:
                part = sockets[place].recv(RECEIVE_BYTES)
                now = clock()
                if not part:
                    raise ConnectionError("the peer closed a connection")
                if place not in parts:
                    continue  # the rest of what it has, or a PING
                parts[place] += part
                if place == writer:
                    if watch.answered(parts[place]):
                        del parts[place]
                elif mark in parts[place]:
                    delays.append(now - began)
                    del parts[place]
    poller.close()
    return delays


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=GRACE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _until(connection: socket.socket, mark: bytes) -> None:
    """Reads until `mark` has come."""
    seen = b""
    while mark not in seen:
        part = connection.recv(RECEIVE_BYTES)
        if not part:
            raise ConnectionError(f"closed before {mark!r}: {seen[-300:]!r}")
        seen += part


def _watch_esker(plan: Plan) -> Watch:
    """A session and a stream for each watcher, from the topic's end on."""
    watchers = []
    body = {"topics": {plan.topic: {"tail": True}}}
    for _ in range(plan.watchers):
        session: dict[str, object] = msgspec.json.decode(http.call(plan.port, "POST", "/v0/watch", body))
        connection = _connect(plan.port)
        head = "GET {} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
        connection.sendall(head.format(session["stream_url"]).encode())
        watchers.append(connection)
    for connection in watchers:
        _until(connection, b"retry: ")
    return Watch(watchers, _connect(plan.port), plan.peer, plan.topic.encode())


def _watch_jetstream(plan: Plan) -> Watch:
    """A push consumer without acks for each watcher, from the stream's end on; its subscription comes first.

    In memory, as a session of Esker is: one in files writes its state at every delivery, and is several times slower.
    """
    topic = plan.topic.encode()
    writer = _connect(plan.port)
    writer.sendall(CONNECT + b"SUB _INBOX.writer 1\r\nSUB _INBOX.made 2\r\nPING\r\n")
    _until(writer, b"PONG\r\n")
    watchers = []
    for number in range(plan.watchers):
        connection = _connect(plan.port)
        connection.sendall(CONNECT + b"SUB watcher.%d 1\r\nPING\r\n" % number)
        _until(connection, b"PONG\r\n")
        watchers.append(connection)
        consumer = {
            "stream_name": plan.topic,
            "config": {
                "deliver_subject": f"watcher.{number}",
                "deliver_policy": "new",
                "ack_policy": "none",
                "mem_storage": True,
            },
        }
        request = publish(b"$JS.API.CONSUMER.CREATE.%b" % topic, b"_INBOX.made", msgspec.json.encode(consumer))
        writer.sendall(request)
        _until(writer, b'"config":')  # of the consumer; an error has none, and ends in a timeout that shows it
    return Watch(watchers, writer, plan.peer, topic)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(drive(msgspec.json.decode(sys.argv[1], type=Plan))))
