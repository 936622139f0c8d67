"""One topic with a thousand routers: what a write to it costs, and when all copies can be read.

The promise: a write to the source is one write of the journal, however many routers there are, and its reply does not
wait for them. Reading a destination shows at once what its source acknowledged, so "readable" is the time from the
write's reply to the last of a thousand reads, each of another destination, over a few connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle
from statistics import median

import msgspec

from bench import bars, http, load
from bench.figures import Run
from bench.peers import Bench, EskerHttp, PeerFailed, Wal
from bench.report import Row, delayed

ROUTERS = 1000
SOURCE, ALONE = "source", "alone"
WRITES, WRITES_QUICK = 200, 60
SLICE_SECONDS = 15.0
READERS = 8


class _Diff(msgspec.Struct):
    head_seq: int
    caught_up: bool


def measure(bench: Bench) -> Iterator[Row]:
    writes = WRITES_QUICK if bench.quick else WRITES
    with bench.esker_http() as esker:
        for topic in (SOURCE, ALONE):
            esker.put_topic(topic, durability="fsync")
        for number in range(ROUTERS):
            esker.call("PUT", f"/v0/routers/r{number}", {"source": SOURCE, "dest": f"copy{number}"})
        routed: list[Run] = []
        alone: list[Run] = []
        for _ in range(bench.rounds):
            alone.append(_written(esker, ALONE, writes))
            routed.append(_written(esker, SOURCE, writes))
        yield delayed("fanout", f"ack of a write, {ROUTERS:,} routers", "no router", routed, alone, None)
        yield _journal(esker, writes)
        yield _readable(esker, bench.rounds)


def _written(esker: EskerHttp, topic: str, writes: int) -> Run:
    plan = load.Plan(
        talk="esker-write", port=esker.port, queue=topic, connections=1, units=writes, seconds=SLICE_SECONDS
    )
    return load.run(plan)


def _journal(esker: EskerHttp, writes: int) -> Row:
    """What the journal wrote between the first and the last of some writes, one at a time."""
    before = esker.wal()
    run = _written(esker, SOURCE, writes)
    after = esker.wal()

    def each(field: str) -> float:
        return float(getattr(after, field) - getattr(before, field)) / run.count

    frames, written, syncs, size = (each(field) for field in Wal.__struct_fields__)
    return Row(
        measure="fanout",
        case=f"writes of the journal for one append, {ROUTERS:,} routers",
        value=round(written, 2),
        unit=" writes",
        bar=bars.FANOUT_WRITES,
        esker=f"{size:,.0f} B",
        note=f"{frames:.2f} batches of events, {syncs:.2f} syncs an append",
    )


def _readable(esker: EskerHttp, rounds: int) -> Row:
    seconds = []
    for number in range(rounds):
        esker.call("POST", f"/v0/topics/{SOURCE}", {"records": [{"data": number}]})
        head = esker.held(SOURCE).head_seq
        seconds.append(_all_read(esker, head))
    return Row(
        measure="fanout",
        case=f"until {ROUTERS:,} copies were read, {READERS} connections",
        value=median(seconds) * 1000,
        unit=" ms",
        esker="/".join(f"{value * 1000:.0f}" for value in seconds) + " ms",
    )


def _all_read(esker: EskerHttp, head: int) -> float:
    """Asks every destination for the record that was just acknowledged, and has it."""
    connections = [esker.connect() for _ in range(READERS)]
    began = time.perf_counter()
    turns = cycle(connections)
    for first in range(0, ROUTERS, READERS):
        group = range(first, min(first + READERS, ROUTERS))
        asked = []
        for number, connection in zip(group, turns, strict=False):
            body = b'{"from_seq":%d,"limit":1}' % (head - 1)
            connection.sendall(http.post(b"/v0/topics/copy%d/diff" % number, body))
            asked.append(connection)
        for connection in asked:
            answer = connection.recv(1 << 16)
            while not http.complete(answer):
                answer += connection.recv(1 << 16)
            found = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=_Diff)
            if found.head_seq != head or not found.caught_up:
                raise PeerFailed(f"a copy was not there when it was read: {answer[-300:]!r}")
    elapsed = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return elapsed
