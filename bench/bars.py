"""What must hold, in one place. A bar is a promise about a ratio or a limit, never about a bare rate."""

from __future__ import annotations

import msgspec


class Bar(msgspec.Struct, frozen=True):
    """`limit` is a floor, or with `ceiling` a ceiling."""

    limit: float
    unit: str
    ceiling: bool = False

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.ceiling else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.ceiling else '≥'} {self.limit:g}{self.unit}"


ENQUEUE = {1: Bar(1.0, "x"), 16: Bar(0.6, "x")}  # by depth of pipeline, against Redis with appendfsync always
# The same for mixed sizes, priorities and queues: what counts. Pipelined it is shown without a bar.
ENQUEUE_MIXED: dict[int, Bar | None] = {1: Bar(0.9, "x"), 16: None}
LIFE = Bar(2.0, "x")  # against beanstalkd -f0
DEPTH = Bar(0.8, "x")  # the rate with a deep backlog against that with a shallow one
JOB_BYTES = Bar(350, " B", ceiling=True)  # resident memory of a waiting job beyond its payload
RESTART = Bar(10, " s", ceiling=True)  # from exec to a node that sees every job
STALL = Bar(10, " ms", ceiling=True)  # 99th percentile of what the event loop keeps a caller waiting
ABUSE = Bar(50, " ms", ceiling=True)  # 99th percentile of a PING beside a client that misbehaves

# Of the HTTP front. Batched writes by class, against the better of Redis Streams and JetStream.
WRITES = {"fsync": Bar(1.0, "x"), "disk": Bar(0.5, "x")}
DIFF = {1000: Bar(0.5, "x")}  # by records a page, against XRANGE
CLAIMS = Bar(2.0, "x")  # claim and ack of 8 with fsync, against XREADGROUP + XACK with appendfsync always
DELIVERY = {100: Bar(2.0, "x", ceiling=True)}  # by watchers: median delay against that of JetStream push consumers
# Of the journal for one append to a topic with 1000 routers: one, but for the few that a checkpoint cuts in two.
FANOUT_WRITES = Bar(1.05, " writes", ceiling=True)
REPLAY = Bar(3.0, "x", ceiling=True)  # from exec to serving, against RocksDB alone iterating as many records
TAIL = Bar(0.8, "x")  # reading the end of a long topic against that of a short one; "as fast as", less the noise

# Of Spark. Reads against spark.read.parquet on the same rows.
SPARK_RECORDS, SPARK_COLD, SPARK_JOBS = Bar(0.5, "x"), Bar(0.9, "x"), Bar(0.4, "x")
SPARK_MEMORY = Bar(200, " MB", ceiling=True)  # what a read of everything adds to the node's memory
SPARK_STREAM = Bar(0.7, "x")  # rows a second inside a batch, against a Python source and sink that do nothing else
SPARK_LOAD = Bar(0.5, "x")  # jobs through the sink, against what the fastest client can bring in
SPARK_POLITE = Bar(3.0, "x", ceiling=True)  # 99th percentile of somebody else's enqueues during a load, against before
