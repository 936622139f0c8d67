"""What a client that behaves sees beside one that does not: its PING, and the node's memory.

Each abuser of `abusers` has a node of its own. PING is sent every 5 ms from an idle connection, from when the abuser
begins until it ends; a ping that was due during a wait counts with what remained of it, as in `stall`.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import bars
from bench.abusers import ABUSERS
from bench.figures import latency_of
from bench.peers import Bench, EskerWhole, PeerFailed
from bench.report import Row
from bench.talk import resp

SECONDS_MAX = 120.0  # of one abuser
PING_SECONDS = 0.005


def measure(bench: Bench) -> Iterator[Row]:
    for name in ABUSERS:
        yield _beside(bench, name)


def _beside(bench: Bench, name: str) -> Row:
    with bench.esker_whole() as esker:
        command = [sys.executable, "-m", "bench.abusers", name, str(esker.resp_port), str(esker.port)]
        abuser = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).resolve().parents[1]
        )
        try:
            assert abuser.stdin is not None
            assert abuser.stdout is not None
            if abuser.stdout.readline() != b"ready\n":
                raise PeerFailed(f"the abuser {name!r} could not prepare")
            before = esker.resident_bytes() or 0
            abuser.stdin.write(b"begin\n")
            abuser.stdin.flush()
            waits, most = _pings(esker, abuser)
        finally:
            abuser.kill()
            abuser.wait()
        latency = latency_of(waits)
    return Row(
        measure="abuse",
        case=f"PING beside {name}, p99",
        value=latency.p99,
        unit=" ms",
        bar=bars.ABUSE,
        esker=f"max {latency.max:.0f} ms",
        esker_latency=latency,
        note=f"resident memory: {before / 1e6:.0f} MB before, at most {most / 1e6:.0f} MB",
    )


def _pings(esker: EskerWhole, abuser: subprocess.Popen[bytes]) -> tuple[list[float], int]:
    """Round trips in seconds, and the most memory that was seen."""
    request, waits, most = resp(b"PING"), list[float](), 0
    with socket.create_connection(("127.0.0.1", esker.resp_port), timeout=SECONDS_MAX) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deadline = time.perf_counter() + SECONDS_MAX
        while abuser.poll() is None and (began := time.perf_counter()) < deadline:
            connection.sendall(request)
            if connection.recv(64) != b"+PONG\r\n":
                raise PeerFailed(f"{esker.name} answered PING with something else")
            wait = time.perf_counter() - began
            while wait > 0:
                waits.append(wait)
                wait -= PING_SECONDS
            most = max(most, esker.resident_bytes() or 0)
            time.sleep(max(0.0, began + PING_SECONDS - time.perf_counter()))
    if abuser.returncode:
        raise PeerFailed(f"the abuser failed with {abuser.returncode}")
    if not waits:
        raise PeerFailed("the abuser ended before the first PING")
    return waits, most
