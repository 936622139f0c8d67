"""kill -9 in the middle of bulk loads: whenever it comes, every row is there once, in order, and none is missing."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.crash.process import NodeProcess
from tests.loads import Loader, stream

PARTS = 4
BATCHES = 2
KILLS_MIN = 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "rows", "share", "config"),  # the share, with somebody beside, makes it slow enough for kills to hit it
    [
        (1, 100_000, 0.05, {"type": "queue", "durability": "fsync"}),
        (2, 80_000, 0.05, {"type": "log", "durability": "disk"}),
    ],
)
def test_every_row_of_a_load_arrives_once_whenever_the_node_is_killed(
    tmp_path: Path, seed: int, rows: int, share: float, config: dict[str, object]
) -> None:
    dice = random.Random(seed)
    # Small segments and frequent checkpoints, so that marks come back from the store as well as from the journal.
    node = NodeProcess(
        tmp_path / "data", "--set", "segment_size=1mb", "--set", "checkpoint_interval_s=1",
        "--set", "checkpoint_after=300kb",
    )  # fmt: skip
    client = _Client(config, share, rows // (BATCHES * PARTS))
    kills = 0  # each a little later than the last, so that it gets through on any machine
    while not client.done:
        with node:
            found = _rows(node)
            assert found == list(range(len(found))), "rows are missing, doubled or out of order"
            client.start(node.http_port)
            beside = threading.Thread(target=_use, args=(node.http_port,))
            beside.start()
            client.wait(dice.uniform(0.1, 0.7) * (1 + kills / 3))
            node.kill()
            client.join()
            beside.join(30)
        kills += 1
    assert kills >= KILLS_MIN, "the load was too quick for the test to mean anything"
    with node:
        assert _rows(node) == list(range(rows))
        assert node.stop() == 0
    with node:
        node.stop()
    assert [path for path in (tmp_path / "data" / "loads").rglob("*") if path.is_file()] == []


class _Client:
    """Stages and commits batch after batch, and begins a batch again when the node dies: as a retried job would."""

    def __init__(self, config: dict[str, object], share: float, part_rows: int) -> None:
        self._config = config
        self._share = share
        self._part_rows = part_rows
        self._attempt = 0
        self._batch = 0
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._failures: list[BaseException] = []

    @property
    def done(self) -> bool:
        return self._batch == BATCHES

    def start(self, port: int) -> None:
        self._over.clear()
        self._thread = threading.Thread(target=self._run, args=(port,))
        self._thread.start()

    def wait(self, seconds: float) -> None:
        self._over.wait(seconds)

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join(30)
        if self._failures:
            raise self._failures[0]

    def _run(self, port: int) -> None:
        try:
            with Loader(f"http://127.0.0.1:{port}", "crash") as loader:
                while not self.done:
                    self._publish(loader)
        except httpx.TransportError:
            return  # the node was killed
        except BaseException as error:  # noqa: BLE001 it is raised again, by the test
            self._failures.append(error)
        finally:
            self._over.set()

    def _publish(self, loader: Loader) -> None:
        state = loader.state(self._batch)["state"]
        if state in ("unknown", "staged"):
            self._attempt += 1
            names = []
            for part in range(PARTS):
                first = (self._batch * PARTS + part) * self._part_rows
                body = stream({"value": [b"%d" % row for row in range(first, first + self._part_rows)]}, 5000)
                answer = loader.put(body, self._batch, part, f"{self._attempt:x}")
                assert answer.status_code == 201, answer.text
                names.append(answer.json()["staged"])
            kind = self._config["type"]
            loader.commit(names, self._batch, topic="t", type=kind, config=self._config, share=self._share)
        state = loader.state(self._batch, 10_000)["state"]
        assert state != "failed", loader.state(self._batch)
        if state == "done":
            self._batch += 1


def _use(port: int) -> None:
    """Asks one thing after the other until the node is killed, so that the share of a load holds."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        try:
            while True:
                client.get("/v0/topics/t")
                time.sleep(0.05)  # a client that needs little
        except httpx.TransportError:
            return


def _rows(node: NodeProcess) -> list[int]:
    """What the topic holds, by pages; a job is read as a record is."""
    found: list[int] = []
    with httpx.Client(base_url=f"http://127.0.0.1:{node.http_port}", timeout=30) as client:
        after = 0
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = client.post(
                "/v0/topics/t/diff", json={"from_seq": after, "limit": 1000, "max_batch_bytes": 8 << 20}
            )
            if answer.status_code == 404:
                return found
            page = answer.json()
            found += [record["data"] for record in page["records"]]
            if page["next_from_seq"] >= page["head_seq"]:
                return found
            after = page["next_from_seq"]
    raise AssertionError("the topic could not be read in time")
