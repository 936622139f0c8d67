"""Log to queue to log, with kills of driver, tasks and broker: every row arrives once."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
import urllib3

from tests.spark import relay
from tests.spark.lake import Broker

STARTS_MAX = 12  # of the driver; a kill may cost more than one
SILENCE_S = 300.0
LOG = "driver.log"


class Driver:
    """The relay in a process group of its own, so that a kill takes Spark with it."""

    def __init__(self, broker: Broker, folder: Path, rows: int) -> None:
        self._said = folder / LOG
        with self._said.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.relay", broker.url, str(folder), str(rows)],
                stdout=subprocess.PIPE, stderr=errors, bufsize=0, start_new_session=True, cwd=Path(__file__).parents[2],
            )  # fmt: skip

    def steps(self, most: int, wait_s: float) -> bool:
        """Waits until it has said so many lines; False: it has ended."""
        output = self._process.stdout
        assert output is not None
        deadline = time.monotonic() + wait_s
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while most:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.kill()
                    raise AssertionError(f"the driver said nothing for {wait_s} s: {self.log()}")
                if not output.readline():
                    return False
                most -= 1
        return True

    def ended(self) -> int:
        """Its exit code; it has said its last."""
        self._process.communicate(timeout=60)
        return self._process.returncode

    def kill(self) -> None:
        """Driver, Java and workers at once, as a machine that goes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self.ended()

    def kill_a_worker(self, random: Random) -> None:
        """One of Spark's Python processes: a task, or the planner of the stream."""
        workers = [pid for pid in _descendants(self._process.pid) if "pyspark.daemon" in _command(pid)]
        if workers:
            os.kill(random.choice(workers), signal.SIGKILL)

    def log(self) -> str:
        return self._said.read_text(errors="replace")[-3000:]


def _relayed(broker: Broker, folder: Path, rows: int, kills: list[str], random: Random) -> Counter[int]:
    """Runs the relay to its end through all kills; how often each row has arrived."""
    broker.ask("PUT", f"/v0/topics/{relay.SOURCE}", {"type": "log", "durability": "fsync"})
    for start in range(0, rows, 5000):
        broker.fill(relay.SOURCE, min(5000, rows - start), first=start)
    for _ in range(STARTS_MAX):
        driver = Driver(broker, folder, rows)
        while driver.steps(random.randint(1, 3), SILENCE_S):
            kill = kills.pop(0) if kills else None
            if kill == "driver":
                driver.kill()
                break
            if kill == "worker":
                driver.kill_a_worker(random)
            if kill == "broker":
                broker.process.kill()
                broker.process.start()
        if driver.ended() == 0:
            return _arrived(broker)
    raise AssertionError(f"the driver was started {STARTS_MAX} times: {(folder / LOG).read_text()[-3000:]}")


def _arrived(broker: Broker) -> Counter[int]:
    url = f"{broker.url}/v0/topics/{relay.TARGET}/records?columns=value"
    response = urllib3.request("GET", url, preload_content=False)
    assert response.status == 200
    found: Counter[int] = Counter()
    with pa.ipc.open_stream(response) as reader:
        for batch in reader:
            found.update(int(value[5:-1]) for value in batch.column("value").to_pylist())  # {"n":7}
    return found


def _fixed_port(another: Callable[..., Broker]) -> Broker:
    """A broker that comes back where it was."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return another("--http-port", str(port))


@pytest.mark.timeout(600)
def test_every_row_arrives_once_through_a_kill_of_each(another: Callable[..., Broker], tmp_path: Path) -> None:
    broker = _fixed_port(another)
    rows = 4000
    found = _relayed(broker, tmp_path, rows, ["broker", "driver", "worker"], Random(7))
    assert found == Counter(range(rows))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_row_arrives_once_through_many_kills(another: Callable[..., Broker], tmp_path: Path, seed: int) -> None:
    broker = _fixed_port(another)
    random = Random(seed)
    rows = 200_000
    kills = [random.choice(["broker", "driver", "worker"]) for _ in range(9)]
    found = _relayed(broker, tmp_path, rows, kills, random)
    assert found == Counter(range(rows))


def _descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue  # it has just ended
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
