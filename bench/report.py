"""The one table of a run, and its forms: terminal, JSON, Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
from rich.console import Console
from rich.table import Table

from bench.bars import Bar
from bench.figures import Latency, Run, cpu, median_latency, median_rate, server_us
from bench.machine import Machine


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One promise and what was seen. `value` is what the bar judges; without a bar the row only informs."""

    measure: str
    case: str
    value: float
    unit: str
    bar: Bar | None = None
    esker: str = ""
    against: str = ""
    esker_latency: Latency | None = None
    against_latency: Latency | None = None
    spread: tuple[float, float] | None = None  # the lowest and highest ratio of a single round
    note: str = ""
    void: bool = False  # what the bar is about did not happen in this run, so the figure proves nothing

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        if self.void:
            return "VOID"
        return "pass" if self.bar.holds(self.value) else "MISS"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    date: str
    quick: bool
    attached: bool
    rounds: int
    seconds: float
    machine: Machine
    rows: Sequence[Row]
    skipped: Sequence[str]  # measures that do not fit the way this run was asked for
    failed: Sequence[str]  # measures that broke off


def compared(measure: str, case: str, against: str, esker: Sequence[Run], other: Sequence[Run], bar: Bar | None) -> Row:
    """Rounds of Esker against as many rounds of something else, as the median of the rounds' ratios of rates.

    Not as a ratio of medians: a shared machine is now faster and now slower, by a third from one minute to the next,
    and what ran in the same round ran on much the same machine.
    """
    ratios = [one.rate / two.rate for one, two in zip(esker, other, strict=True)]
    client = cpu([*esker, *other])
    spent = server_us(esker), server_us(other)
    notes = [] if client is None else [f"client at most {client:.0%} of a core"]
    if None not in spent:
        notes.append(f"the servers spent {spent[0]:.1f} and {spent[1]:.1f} us of processor on each")
    return Row(
        measure=measure,
        case=case,
        value=median(ratios),
        unit="x",
        bar=bar,
        esker=f"{median_rate(esker):,.0f}/s",
        against=f"{against} {median_rate(other):,.0f}/s",
        esker_latency=median_latency(esker),
        against_latency=median_latency(other),
        spread=(min(ratios), max(ratios)) if len(ratios) > 1 else None,
        note="; ".join(notes),
    )


def delayed(measure: str, case: str, against: str, esker: Sequence[Run], other: Sequence[Run], bar: Bar | None) -> Row:
    """As `compared`, where it is the median delay that counts: a ratio above 1 means that Esker is the slower."""
    here, there = median_latency(esker), median_latency(other)
    ratios = [one.latency.p50 / two.latency.p50 for one, two in zip(esker, other, strict=True)]
    client = cpu([*esker, *other])
    return Row(
        measure=measure,
        case=case,
        value=median(ratios),
        unit="x",
        bar=bar,
        esker=f"{here.p50:.2f} ms",
        against=f"{against} {there.p50:.2f} ms",
        esker_latency=here,
        against_latency=there,
        spread=(min(ratios), max(ratios)) if len(ratios) > 1 else None,
        note="" if client is None else f"client at most {client:.0%} of a core",
    )


METHOD = """\
* Every measure alternates Esker and its peer in {rounds} round(s), and who goes first; a figure is the median of the
  rounds. A ratio is the median of the rounds' ratios, because the machine's speed drifts and what ran in one round ran
  on much the same machine; "rounds" gives the lowest and highest of them. Enqueues without a pipeline are short runs,
  and have five times as many rounds.
* Payloads are 200 bytes. Every peer runs on loopback with its data on one file system, starts afresh for each run
  (diff, fanout and tail keep theirs), and, unless a class says otherwise, syncs every write before its reply: Redis
  with `appendonly yes`, `appendfsync always`, no snapshots, no rewriting;
  beanstalkd with `-f0`; Esker with its default class `fsync`.
* enqueue: `redis-benchmark`, LPUSH on Redis, ADDJOB on Esker, the same options otherwise. P is the depth of pipelining.
* life: enqueue, lease, ack of a job, as three round trips on one connection; 50 connections share one queue. The client
  is one Python process with epoll and plain sockets, the same loop for both peers; "client" is its share of a core.
  beanstalkd syncs twice in a life, put and delete, and for each connection alone; it has no group commit, which is most
  of the ratio.
* backlog: nodes with different numbers of waiting jobs of random priorities 0-99 stand side by side; the measure goes
  round them in small slices of enqueueing and of lease + ack, 50 connections each, so that depths hardly move.
  Memory is the resident set after filling and coming to rest, minus that of the empty node, divided by the jobs; the
  payload's 200 bytes are subtracted whether or not the node keeps payloads in memory. The undiminished
  figure stands beside it.
* restart: from exec to the first QLEN that counts every job, after SIGTERM and after SIGKILL; before the SIGKILL
  more jobs are added, which no orderly stop has checkpointed.
* stall: while 50 connections enqueue, an otherwise idle connection sends PING every 5 ms. A PING that was due while
  one was awaited counts with what remained of that wait. Its p99 includes the machine's own scheduling, the load
  generator's share of it too; the node's own meter (INFO) does not.

Over HTTP, beside Redis Streams and NATS JetStream:

* One Python process with epoll and plain sockets talks to each peer in its own protocol, with requests made beforehand
  and as little parsing as the load needs: HTTP/1.1 with keep-alive, RESP, and NATS's own. Every connection has one
  request on its way.
* By class: `fsync` meets Redis with `appendfsync always` and JetStream with `sync_interval: always`; `disk` everysec
  and JetStream's default, files without a sync before the ack; `memory` and `ephemeral` a Redis without a file and a
  JetStream stream in memory.
* single: one record a request from one writer. batches: 100 records a request from each of 16 writers; Redis gets 100
  pipelined XADDs, JetStream 100 pipelined publishes or, with files, one atomic batch of 100. The bar is about the best
  of these.
* diff: pages from random places of a topic of 100,000 records, 4 readers; XRANGE COUNT on Redis, a direct get of as
  many messages on JetStream.
* watchers: from before the write is sent until a watcher has it, one write at a time, each watcher with a connection
  and a session of its own; push consumers in memory and without acks on JetStream. Class `disk`. A ratio is one of
  median delays. One process holds the writer and all watchers, so with many of them its own reading is a part of both
  figures.
* claims: 50 workers claim 8 jobs with one request and ack these 8 with the next, class `fsync`; XREADGROUP COUNT 8 and
  one XACK of 8 on Redis; on JetStream a pull of 8 and 8 confirmed acks. An ack removes the job from Esker and from
  JetStream's work queue; Redis keeps the entry. "answers made beforehand" is a server that sends the same bytes again
  and again and does nothing else: what it reaches is the most that anything can reach here. What the servers spent is
  processor time a job, in user mode and in the kernel.
* fanout: writes one at a time to a topic with 1000 routers and to one with none, class `fsync`; what the journal wrote
  meanwhile, from the node's metrics; and how long it takes to read the copy from each of the 1000 topics.
* replay: from exec to the first state that counts every record, class `fsync`; RocksDB alone is a Python process that
  iterates as many records of the same size, from its exec to its end.
* tail: the last 256 records of a long topic and of a short one, both on one node, in turns.

Spark, in one session of two cores, after a warm-up, every read into the `noop` sink:

* records, cold, jobs: all columns of a log, of a log that is in the archive (`esker.spark.read`), and of a queue,
  against `spark.read.parquet` on the same rows, written by Spark with zstd. Node, Python workers and JVM share the two
  cores. Memory is the highest the node's resident set was during the reads, less that before them.
* stream: 200,000 rows a batch; the rows of all batches but the first by the time Spark says their triggers took.
  Against a Python source that makes its rows from memory and an Arrow sink that throws them away.
* load: jobs from Parquet through the sink into a queue of class `fsync`, with `share` 1, until the last one is in the
  queue; against `redis-benchmark` with 200 connections and a pipeline of 16 on an empty node.
* polite: one connection that enqueues job by job, before and during a load with the default `share`.
"""


def show(report: Report, console: Console) -> None:
    table = Table(title="Esker beside its peers" + (" (quick: indicative only)" if report.quick else ""))
    for heading in HEADINGS:
        table.add_column(heading)
    for row in report.rows:
        style = {"pass": "green", "MISS": "bold red", "VOID": "yellow"}.get(row.verdict)
        table.add_row(*_cells(row), style=style)
    console.print(table)
    for reason in (*report.skipped, *report.failed):
        console.print(f"not run: {reason}")
    machine = report.machine
    sync = machine.sync
    console.print(
        f"{machine.cores} cores, {machine.file_system}, a sync takes {sync.p50} ms (p99 {sync.p99} ms); "
        f"{report.rounds} round(s), {report.seconds:.0f} s"
    )


def save(report: Report, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latest.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    (folder / "README.md").write_text(markdown(report), encoding="utf-8")


def markdown(report: Report) -> str:
    machine, sync = report.machine, report.machine.sync
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    lines = [
        "# Benchmark results",
        "",
        "Written by `make bench`; the same figures, with latencies, are in `latest.json`.",
        "",
        f"{report.date}, {report.rounds} round(s), {report.seconds / 60:.0f} minutes"
        + (", a quick run: indicative only" if report.quick else "")
        + (", against a node that was already running" if report.attached else "")
        + ".",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
        *("| " + " | ".join(_cells(row)) + " |" for row in report.rows),
        *("", *(f"Not run: {reason}" for reason in (*report.skipped, *report.failed))),
        "",
        "## Machine",
        "",
        f"{machine.cores} cores ({machine.processor}), {machine.memory_gib} GiB, Linux {machine.kernel}.",
        f"Data on {machine.file_system}. Python {machine.python}; {versions}.",
        f"One 4 KiB append with fdatasync: p50 {sync.p50} ms, p95 {sync.p95} ms, p99 {sync.p99} ms.",
        "",
        "## Method",
        "",
        METHOD.format(rounds=report.rounds),
    ]
    return "\n".join(lines)


HEADINGS = (
    "measure",
    "case",
    "Esker",
    "against",
    "result",
    "bar",
    "",
    "Esker p50/p95/p99 ms",
    "against p50/p95/p99 ms",
    "note",
)


def _cells(row: Row) -> tuple[str, ...]:
    spread = "" if row.spread is None else f"rounds {row.spread[0]:.2f}-{row.spread[1]:.2f}"
    note = "; ".join(part for part in (spread, row.note) if part)
    value = f"{row.value:.2f}" if row.value < 100 else f"{row.value:,.0f}"
    return (
        row.measure, row.case, row.esker, row.against, f"{value}{row.unit}", "" if row.bar is None else str(row.bar),
        row.verdict, _latency(row.esker_latency), _latency(row.against_latency), note,
    )  # fmt: skip


def _latency(latency: Latency | None) -> str:
    return "" if latency is None else f"{latency.p50:.2f} / {latency.p95:.2f} / {latency.p99:.2f}"
