"""How soon watchers have what was written: server-sent events of Esker against push consumers of JetStream.

Class `disk` on Esker, a stream in files with the default sync interval on JetStream. Every watcher has a session or a
consumer, and a connection, of its own; neither a session nor such a consumer outlives its server.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import bars, deliveries
from bench.figures import Run, alternated
from bench.peers import Bench
from bench.report import Row, delayed

WRITES = {1: 2000, 100: 300, 1000: 40}  # by watchers
WRITES_QUICK = {1: 500, 100: 100, 1000: 15}
TOPIC = "watched"


def measure(bench: Bench) -> Iterator[Row]:
    for watchers in WRITES:
        writes = (WRITES_QUICK if bench.quick else WRITES)[watchers]
        esker, jetstream = alternated(
            bench.rounds, partial(_esker, bench, watchers, writes), partial(_jetstream, bench, watchers, writes)
        )
        case = f"write to delivery, {watchers:,} watchers"
        yield delayed("watchers", case, "push consumers", esker, jetstream, bars.DELIVERY.get(watchers))


def _esker(bench: Bench, watchers: int, writes: int) -> Run:
    with bench.esker_http() as esker:
        esker.put_topic(TOPIC, durability="disk")
        return deliveries.run(
            deliveries.Plan(peer="esker", port=esker.port, topic=TOPIC, watchers=watchers, writes=writes)
        )


def _jetstream(bench: Bench, watchers: int, writes: int) -> Run:
    with bench.jetstream(synced=False) as jetstream:
        jetstream.add_stream(TOPIC)
        return deliveries.run(
            deliveries.Plan(peer="jetstream", port=jetstream.port, topic=TOPIC, watchers=watchers, writes=writes)
        )
