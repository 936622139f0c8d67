"""How long the event loop keeps a caller waiting while the node is loaded and writes checkpoints.

Two views: the node's own meter, from INFO, and PING from a connection that does nothing else. A load of enqueues makes
sure that checkpoints have something to write: a job that lives and dies between two of them never reaches the store.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator

from bench import bars, load
from bench.figures import Latency, latency_of
from bench.peers import Bench, Esker, PeerFailed
from bench.report import Row
from bench.talk import resp

CONNECTIONS = 50
SECONDS, SECONDS_QUICK = 40.0, 20.0
PING_SECONDS = 0.005

# Fields of INFO, without their endings.
METERS = {
    "loop_stall": "the node's own meter, p99",
    "loop_stall_checkpoint": "the node's own meter during checkpoints, p99",
}


def measure(bench: Bench) -> Iterator[Row]:
    seconds = SECONDS_QUICK if bench.quick else SECONDS
    with bench.esker() as esker:
        before = esker.info()
        plan = load.Plan(
            talk="esker-enqueue",
            port=esker.port,
            queue="stall",
            connections=CONNECTIONS,
            units=1 << 40,
            seconds=seconds,
        )
        process = load.start(plan)
        try:
            pings = latency_of(_pings(esker, process, seconds))
        finally:
            run = load.finish(process, plan)
        after = esker.info()
    done = int(after.get("checkpoints_done", 0)) - int(before.get("checkpoints_done", 0))
    # A node that wrote no checkpoint cannot show what one does to its callers.
    note = f"{done} checkpoints in {run.seconds:.0f} s at {run.rate:,.0f} enqueues/s"
    yield _row("PING from an idle connection, p99", pings.p99, pings.max, note, done, pings)
    for field, case in METERS.items():
        if f"{field}_p99_us" in after:
            p99, worst = (int(after[f"{field}_{name}_us"]) / 1000 for name in ("p99", "max"))
            yield _row(case, p99, worst, note, done, None)


def _row(case: str, p99: float, worst: float, note: str, checkpoints: int, latency: Latency | None) -> Row:
    return Row(
        measure="stall",
        case=case,
        value=p99,
        unit=" ms",
        bar=bars.STALL,
        esker=f"max {worst:.1f} ms",
        esker_latency=latency,
        note=note,
        void=checkpoints == 0,
    )


def _pings(esker: Esker, process: subprocess.Popen[bytes], seconds: float) -> list[float]:
    """Round trips of PING, one every 5 ms, until the load ends.

    A caller that waits cannot ask again, and so would see one long stall as a single bad sample among thousands. Each
    ping that was due during a wait is counted with what remained of it.
    """
    request, waits = resp(b"PING"), []
    with socket.create_connection(("127.0.0.1", esker.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deadline = time.perf_counter() + seconds
        while process.poll() is None and (began := time.perf_counter()) < deadline:
            connection.sendall(request)
            if connection.recv(64) != b"+PONG\r\n":
                raise PeerFailed(f"{esker.name} answered PING with something else")
            wait = time.perf_counter() - began
            while wait > 0:
                waits.append(wait)
                wait -= PING_SECONDS
            time.sleep(max(0.0, began + PING_SECONDS - time.perf_counter()))
    if not waits:
        raise PeerFailed("the load ended before the first PING")
    return waits
