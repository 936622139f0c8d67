"""Many waiting jobs, fast: one connection, deep pipelining, random priorities."""

from __future__ import annotations

import socket
import time
from random import Random

from bench.peers import Esker, PeerFailed
from bench.talk import PRIORITIES, addjob

CHUNK_JOBS = 1000
CHUNKS_AHEAD = 4  # sent and not yet answered: keeps the node busy, and both ends' buffers small
SECONDS_MAX = 900


def fill(esker: Esker, queue: str, jobs: int, first: int = 0, priorities: int = PRIORITIES) -> float:
    """Adds `jobs` jobs, numbered from `first`, and returns the seconds it took. Every reply is counted."""
    random = Random(first)
    began = time.monotonic()
    sent = answered = 0
    with socket.create_connection(("127.0.0.1", esker.resp_port), timeout=60) as connection:
        while answered < jobs:
            if sent < jobs and sent - answered <= CHUNK_JOBS * (CHUNKS_AHEAD - 1):
                size = min(CHUNK_JOBS, jobs - sent)
                numbers = range(first + sent, first + sent + size)
                name = queue.encode()
                connection.sendall(b"".join(addjob(name, number, random.randrange(priorities)) for number in numbers))
                sent += size
                continue
            answered += _answers(connection.recv(1 << 18))
            if time.monotonic() - began > SECONDS_MAX:
                raise PeerFailed(f"filling took over {SECONDS_MAX} s; {answered:,} of {jobs:,} jobs were accepted")
    return time.monotonic() - began


def _answers(part: bytes) -> int:
    """How many replies end in this part of the stream. A refusal starts a line with a minus sign."""
    if not part:
        raise PeerFailed("the node closed the connection while being filled")
    if part.startswith(b"-") or b"\n-" in part:
        raise PeerFailed(f"the node refused a job: {part[part.index(b'-') :][:120]!r}")
    return part.count(b"\n")
