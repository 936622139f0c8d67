"""Esker in about three minutes: a broker, 200,000 orders, workers that fail and die, and Spark around them.

    python examples/demo/demo.py [--folder DIR] [--jobs N]

1. starts a node with an archive
2. makes orders with Spark and loads them into a queue, the urgent ones first
3. lets workers take them over the Redis protocol; some orders fail, one worker dies with orders in its hands
4. meanwhile a stream counts what they ship, and writes the counts to another topic
5. looks at the dead letters and sends them back
6. makes the lifecycle report, and audits the whole history against the live state

Everything it starts, it ends. What it made stays in the folder.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.panel import Panel

from esker.errors import EskerError
from esker.spark import session
from esker.spark.pipelines import registry
from esker.spark.pipelines.declared import read_declaration
from esker.spark.pipelines.progress import Progress
from esker.spark.pipelines.terminal import terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
QUEUE, DEAD, DONE, COUNTS = "orders", "orders-dead", "shipped", "shipped-per-window"
WORKERS = 4
START_S = 60.0


@dataclass(frozen=True)
class Node:
    """A running broker."""

    process: subprocess.Popen[bytes]
    http_port: int
    resp_port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.endpoint + path, data, {"content-type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, object] = json.load(answer)
            return found

    def left(self) -> int:
        """Orders that are not done."""
        count = self.ask("GET", f"/v0/topics/{QUEUE}?touch=false").get("count", 0)
        return count if isinstance(count, int) else 0


def main() -> int:
    options = argparse.ArgumentParser(description="Esker in three minutes.")
    options.add_argument("--folder", type=Path, help="where everything goes; else a new temporary folder")
    options.add_argument("--jobs", type=int, default=200_000)
    given = options.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="esker-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it started, as Ctrl-C does
    console = Console(stderr=True, highlight=False)
    console.print(Panel(f"everything goes to {folder}", title="Esker: the demo", expand=False))
    began = time.monotonic()
    try:
        with terminal(console) as progress, running_node(folder, progress) as node:
            lines, sound = story(folder, node, given.jobs, progress)
    except EskerError as error:
        console.print(f"[red]{error}[/red]")
        return 1
    lines.append(f"All of it took {time.monotonic() - began:.0f} s.")
    console.print(Panel("\n".join(lines), title="What happened", expand=False))
    return 0 if sound else 1


def story(folder: Path, node: Node, jobs: int, progress: Progress) -> tuple[list[str], bool]:
    progress.stage("starting Spark")
    spark = session("esker demo")
    try:
        make_topics(node)
        lines = load_orders(spark, node, folder, jobs, progress)
        lines += work_and_count(spark, node, folder, jobs, progress)
        lines += send_back(spark, node, progress)
        return judge(spark, node, folder, lines, progress)
    finally:
        spark.stop()


@contextmanager
def running_node(folder: Path, progress: Progress) -> Iterator[Node]:
    """Small segments, so that history moves to the archive while we look."""
    progress.stage("starting a node")
    ports = folder / "ports.json"
    ports.unlink(missing_ok=True)
    arguments = [
        "serve", "--data", str(folder / "data"), "--archive", str(folder / "archive"), "--http-port", "0",
        "--resp-port", "0", "--port-file", str(ports), "--set", "segment_size=8mb", "--set", "checkpoint_interval_s=5",
    ]  # fmt: skip
    with (folder / "node.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "esker.cli.main", *arguments], stderr=log)
    try:
        deadline = time.monotonic() + START_S
        while not ports.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise EskerError(f"the node did not start; see {folder / 'node.log'}")
            time.sleep(0.05)  # the file is the signal; there is nothing to wait on
        bound = json.loads(ports.read_text())
        yield Node(process, bound["http"], bound["resp"])
    finally:
        process.terminate()
        process.wait(timeout=60)


def make_topics(node: Node) -> None:
    queue = {"type": "queue", "durability": "fsync", "lease_ms": 5000, "max_deliveries": 3, "dead_letter": DEAD}
    node.ask("PUT", f"/v0/topics/{DEAD}", {"type": "queue", "durability": "fsync"})
    node.ask("PUT", f"/v0/topics/{QUEUE}", queue)
    node.ask("PUT", f"/v0/topics/{DONE}", {"type": "log", "durability": "disk"})


def load_orders(spark: SparkSession, node: Node, folder: Path, jobs: int, progress: Progress) -> list[str]:
    """Urgent orders are few: priority 0 is one in twenty, 9 is the rest of the night's batch."""
    progress.stage(f"making {jobs:,} orders as Parquet")
    spark.range(jobs).selectExpr(
        "id",
        "element_at(array('tea', 'coffee', 'cocoa', 'milk', 'sugar'), cast(id * 7919 % 5 as int) + 1) AS product",
        "round(1 + id * 104729 % 9973 / 50, 2) AS amount",
        "CASE WHEN id % 20 = 0 THEN 0 WHEN id % 3 = 0 THEN 5 ELSE 9 END AS urgency",
    ).write.mode("overwrite").parquet(str(folder / "orders"))
    given = {
        "input": str(folder / "orders"), "topic": QUEUE, "value": "to_json(struct(id, product, amount))",
        "map.priority": "urgency", "map.tag": "product", "map.key": "cast(id AS string)", "share": "0.8",
    }  # fmt: skip
    began = time.monotonic()
    result = registry.run("load", spark, given, endpoint=node.endpoint, progress=progress)
    return [f"load: {result.lines[0]}, in {time.monotonic() - began:.0f} s"]


def work_and_count(spark: SparkSession, node: Node, folder: Path, jobs: int, progress: Progress) -> list[str]:
    from esker.spark.pipelines import transform

    file = HERE / f"{COUNTS}.toml"
    order = registry.make_order(
        registry.find("transform"), {"file": str(file)},
        endpoint=node.endpoint, continuous=True, checkpoint=str(folder / "checkpoint"),
    )  # fmt: skip
    query = transform.start(spark, read_declaration(file), order)
    workers = [start_worker(node, number, jobs) for number in range(WORKERS)]
    began = time.monotonic()
    try:
        progress.stage(f"{WORKERS} workers over the Redis protocol, one of which will die", jobs, "orders")
        while any(worker.poll() is None for worker in workers):
            progress.advance(jobs - node.left())
            time.sleep(0.5)  # a look now and then; the workers end by themselves
        progress.advance(jobs - node.left())
        took = time.monotonic() - began
        query.processAllAvailable()
        counted = sum(int(report["numInputRows"]) for report in query.recentProgress)
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait(timeout=10)
        query.stop()
    died = sum(worker.returncode != 0 for worker in workers)
    windows = node.ask("GET", f"/v0/topics/{COUNTS}?touch=false").get("count", 0)
    return [
        f"work: {WORKERS} workers took {took:.0f} s; {died} died, and what it held was done by others",
        f"transform: {counted:,} shipped orders became {windows} rows of {COUNTS} while they worked",
    ]


def start_worker(node: Node, number: int, jobs: int) -> subprocess.Popen[bytes]:
    dies_after = jobs // 20 if number == WORKERS - 1 else 0
    arguments = ["--name", f"worker-{number}", "--resp-port", str(node.resp_port), "--http-port", str(node.http_port)]
    return subprocess.Popen([sys.executable, str(HERE / "worker.py"), *arguments, "--dies-after", str(dies_after)])


def send_back(spark: SparkSession, node: Node, progress: Progress) -> list[str]:
    """Half of the dead letters: the dear ones get another chance."""
    given = {"source": DEAD, "where": "cast(get_json_object(cast(value AS string), '$.amount') AS double) > 100"}
    looked = registry.run("replay", spark, given, endpoint=node.endpoint, progress=progress)
    done = registry.run("replay", spark, {**given, "apply": "true"}, endpoint=node.endpoint, progress=progress)
    return [f"replay: {looked.facts['chosen']} dead letters above 100 were chosen by SQL; {done.lines[-1]}"]


def judge(
    spark: SparkSession, node: Node, folder: Path, lines: list[str], progress: Progress
) -> tuple[list[str], bool]:
    report = registry.run(
        "lifecycle",
        spark,
        {"bucket_s": "2"},
        endpoint=node.endpoint,
        output=str(folder / "lifecycle"),
        progress=progress,
    )
    audit = registry.run("audit", spark, {}, endpoint=node.endpoint, progress=progress)
    lines += [*(f"lifecycle: {line}" for line in report.lines[:1]), *(f"audit: {line}" for line in audit.lines[:3])]
    lines += ["", *(f"→ {path}" for path in report.paths), f"→ {folder / 'archive'} (Parquet: records and history)"]
    return lines, audit.exit_code == 0


if __name__ == "__main__":
    sys.exit(main())
