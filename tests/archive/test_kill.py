"""A node that is killed again and again while records move to its archive loses none that it acknowledged."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import httpx

from tests.crash.process import NodeProcess
from tests.fronts.http.streams.wire import eventually

KILLS = 3
DURABLE = {"durability": "fsync"}


def _write_until_killed(node: NodeProcess, acked: list[int]) -> None:
    """Writes what counts on from the last number that was acknowledged."""
    with httpx.Client(base_url=f"http://127.0.0.1:{node.http_port}", timeout=10) as client:
        while True:
            numbers = range(acked[-1] + 1, acked[-1] + 51)
            body = {"records": [{"data": n, "tag": f"t{n % 7}"} for n in numbers], "config": DURABLE}
            try:
                answer = client.post("/v0/topics/a?return_seqs=false", json=body)
            except httpx.HTTPError:
                return
            assert answer.status_code in (200, 201), answer.text
            acked.append(numbers[-1])


def _numbers(node: NodeProcess) -> list[int]:
    found: list[int] = []
    position = 0
    with httpx.Client(base_url=f"http://127.0.0.1:{node.http_port}", timeout=10) as client:
        while True:
            answer = client.post("/v0/topics/a/diff", json={"from_seq": position, "limit": 1000})
            assert answer.status_code == 200, answer.text
            page = answer.json()
            assert page["tombstone"] is None
            found += [record["data"] for record in page["records"]]
            position = page["next_from_seq"]
            if page["caught_up"]:
                return found


def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    dice = Random(7)
    settings = {"archive_hot_blocks": 1, "archive_after_s": 0, "checkpoint_interval_s": 1, "segment_size": "256kb"}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    node = NodeProcess(tmp_path / "data", "--archive", str(tmp_path / "archive"), *options)
    acked = [-1]
    for _ in range(KILLS):
        node.start()
        writer = threading.Thread(target=_write_until_killed, args=(node, acked))
        killer = threading.Timer(1.5 + dice.random(), node.kill)
        writer.start()
        killer.start()
        writer.join()
        killer.join()
        with node:
            found = _numbers(node)
            assert found == list(range(len(found)))
            assert len(found) >= acked[-1] + 1, "what was acknowledged is gone"
            acked.append(found[-1] if found else -1)
            node.kill()
    with node:  # what no life was long enough for is done by the next
        for folder in ("records", "events"):
            eventually(lambda folder=folder: list((tmp_path / "archive" / folder).rglob("*.parquet")), 30)
