"""A closed loop over many connections: each sends its next request only when the last was answered.

It runs in a process of its own (`run` starts it, `python -m bench.load` is it), because a generator that shares a
process with anything else measures that too. One thread, epoll and plain sockets: some 10 us of client work for a
request, the same for every peer. It ends after `units` or `seconds`, whichever comes first.
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

from bench import http, jetstream, streams
from bench.figures import Run, latency_of
from bench.talk import TALKS as QUEUE_TALKS
from bench.talk import Part, Talk

GRACE_SECONDS = 30  # beyond the load's own limit: connecting, and answers still on their way
RECEIVE_BYTES = 1 << 20  # a page of a thousand records in as few pieces as the kernel has them
TALKS = {**QUEUE_TALKS, **http.TALKS, **streams.TALKS, **jetstream.TALKS}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. `units` are counted over all connections; what a run counts is records or jobs, `batch` a unit."""

    talk: str
    port: int
    queue: str
    connections: int
    units: int
    seconds: float
    seed: int = 1
    batch: int = 1
    depth: int = 0


class LoadFailed(Exception):
    """The load generator ended without a figure; the message is what it said."""


def start(plan: Plan) -> subprocess.Popen[bytes]:
    """Starts the load in its own process. Give what it returns to `finish`, whatever happens."""
    command = [sys.executable, "-m", "bench.load", msgspec.json.encode(plan).decode()]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).resolve().parents[1]
    )


def finish(process: subprocess.Popen[bytes], plan: Plan) -> Run:
    """Waits for the figures, and never leaves the process behind."""
    try:
        out, complaint = process.communicate(timeout=plan.seconds + GRACE_SECONDS)
    except subprocess.TimeoutExpired as late:
        raise LoadFailed(f"{plan.talk} with {plan.connections} connections did not end") from late
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise LoadFailed(f"{plan.talk} with {plan.connections} connections: {complaint.decode().strip()[-2000:]}")
    return msgspec.json.decode(out, type=Run)


def run(plan: Plan) -> Run:
    return finish(start(plan), plan)


def drive(plan: Plan) -> Run:
    """The loop itself."""
    make = TALKS[plan.talk]
    poller = select.epoll()
    talks: dict[int, Talk] = {}
    sockets: dict[int, socket.socket] = {}
    for number in range(plan.connections):
        connection = socket.create_connection(("127.0.0.1", plan.port), timeout=GRACE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        talks[connection.fileno()] = make(Part(plan.queue.encode(), plan.seed * 1000 + number, plan.batch, plan.depth))
        sockets[connection.fileno()] = connection
        poller.register(connection, select.EPOLLIN)
    gc.disable()  # nothing here makes cycles, and a collection would show as the peer's latency
    cpu_before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    waits = _loop(plan, poller, talks, sockets, began)
    elapsed = time.perf_counter() - began
    cpu = resource.getrusage(resource.RUSAGE_SELF)
    busy = cpu.ru_utime + cpu.ru_stime - cpu_before.ru_utime - cpu_before.ru_stime
    for connection in sockets.values():
        connection.close()
    return Run(len(waits) * plan.batch, elapsed, latency_of(waits), busy / elapsed)


def _loop(
    plan: Plan, poller: select.epoll, talks: dict[int, Talk], sockets: dict[int, socket.socket], began: float
) -> list[float]:
    """Runs units until one of the limits, lets those on their way end, and returns how long each took."""
    clock = time.perf_counter
    started = dict.fromkeys(talks, began)
    parts = dict.fromkeys(talks, b"")
    waits: list[float] = []
    for place, talk in talks.items():
        sockets[place].sendall(talk.begin())
    begun = running = len(talks)
    last_start = began + plan.seconds
    while running:
        ready = poller.poll(GRACE_SECONDS)
        if not ready:
            raise TimeoutError(f"no answer within {GRACE_SECONDS} s")
        for place, _ in ready:
            answer = parts[place] + sockets[place].recv(RECEIVE_BYTES)
            if answer == parts[place]:
                raise ConnectionError("the peer closed the connection")
            talk = talks[place]
            if not talk.complete(answer):
                parts[place] = answer
                continue
            parts[place] = b""
            request = talk.follow(answer)
            if request is None:
                now = clock()
                waits.append(now - started[place])
                if begun >= plan.units or now >= last_start:
                    running -= 1
                    continue
                begun += 1
                started[place] = now
                request = talk.begin()
            sockets[place].sendall(request)
    return waits


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(drive(msgspec.json.decode(sys.argv[1], type=Plan))))
