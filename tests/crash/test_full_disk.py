"""A disk that is full, or a process without file descriptors, for a while: the node serves, says so, and recovers."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.crash.process import NodeProcess

DISK_BYTES = 220 << 20  # the journal wants 128 MiB free besides its segments, or it refuses new jobs
WAIT_S = 60.0
OPTIONS = (
    "--set", "segment_size=4mb", "--set", "checkpoint_interval_s=1", "--set", "checkpoint_after=1mb",
    "--set", "hot_payloads=0",
)  # fmt: skip


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"a disk of its own cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)  # what the node tells of itself is the only sign


def facts(client: redis.Redis) -> dict[str, str]:
    return {name: str(value) for name, value in client.info("persistence").items()}


def descriptors(node: NodeProcess) -> int:
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


def ask(client: redis.Redis, *words: str | bytes | int) -> Any:
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


def failing(client: redis.Redis) -> bool:
    return facts(client)["checkpoint_error"] != ""


def use(client: redis.Redis, jobs: dict[bytes, bytes]) -> None:
    """One job is leased, read and acked."""
    ((_, job, body),) = ask(client, "GETJOB", "NOHANG", "FROM", "q")
    assert jobs.pop(job) == body
    assert ask(client, "ACKJOB", job) == 1


def all_jobs(client: redis.Redis) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    while got := ask(client, "GETJOB", "NOHANG", "COUNT", "1000", "FROM", "q"):
        found |= {job: body for _, job, body in got}
    return found


def add(client: redis.Redis, jobs: dict[bytes, bytes], count: int) -> None:
    for _ in range(count):
        body = os.urandom(2000)
        jobs[ask(client, "ADDJOB", "q", body, 0)] = body


def test_a_disk_that_another_process_fills_stops_nothing_but_new_jobs_and_once_freed_all_is_well(
    small_disk: Path,
) -> None:
    jobs: dict[bytes, bytes] = {}
    node = NodeProcess(small_disk / "data", *OPTIONS)
    with node, node.client() as client, httpx.Client(base_url=f"http://127.0.0.1:{node.http_port}") as web:
        add(client, jobs, 300)
        until(lambda: facts(client)["checkpoint_position"] == facts(client)["journal_position"], "a checkpoint")
        add(client, jobs, 300)
        filler = small_disk / "filler"
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=64k"], capture_output=True, check=False)
        until(lambda: facts(client)["journal_read_only"] == "1", "that new jobs are refused")
        with pytest.raises(redis.ResponseError, match="MISCONF the disk is nearly full"):
            ask(client, "ADDJOB", "q", b"new", 0)
        until(lambda: failing(client), "a failed checkpoint")
        for _ in range(20):
            use(client, jobs)
        told = web.get("/healthz").json()
        assert told["status"] == "degraded"
        assert "checkpoints have failed" in told["problem"]
        assert web.get("/readyz").status_code == 200
        assert facts(client)["aof_last_bgrewrite_status"] == "err"
        assert "No space left on device" in facts(client)["checkpoint_error"]
        failures = int(facts(client)["checkpoint_failures"])
        until(lambda: int(facts(client)["checkpoint_failures"]) > failures, "another try")
        use(client, jobs)
        filler.unlink()
        until(lambda: not failing(client), "a checkpoint that succeeds")
        until(lambda: facts(client)["journal_read_only"] == "0", "that new jobs are taken again")
        assert web.get("/healthz").json()["status"] == "ok"
        add(client, jobs, 300)
        node.kill()
    assert "the store writes again" in node.said
    with node, node.client() as client:
        assert all_jobs(client) == jobs
        assert node.stop() == 0


def test_a_node_without_file_descriptors_for_a_while_serves_those_it_has_and_recovers(tmp_path: Path) -> None:
    jobs: dict[bytes, bytes] = {}
    node = NodeProcess(tmp_path / "data", *OPTIONS)
    with node, node.client() as client, httpx.Client(base_url=f"http://127.0.0.1:{node.http_port}") as web:
        add(client, jobs, 300)
        until(lambda: facts(client)["checkpoint_position"] == facts(client)["journal_position"], "a checkpoint")
        assert web.get("/readyz").status_code == 200
        used = descriptors(node)
        _, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (used + 8, hard))
        with ExitStack() as crowd:
            for _ in range(16):
                crowd.enter_context(socket.create_connection(("127.0.0.1", node.port)))
            until(lambda: descriptors(node) >= used + 8, "that all descriptors are in use")
            while not failing(client):
                add(client, jobs, 100)
            for _ in range(20):
                use(client, jobs)
            assert "Too many open files" in facts(client)["checkpoint_error"]
            assert web.get("/healthz").json()["status"] == "degraded"
            assert web.get("/readyz").status_code == 200
        until(lambda: not failing(client), "a checkpoint that succeeds")
        add(client, jobs, 300)
        node.kill()
    with node, node.client() as client:
        assert all_jobs(client) == jobs
        assert node.stop() == 0
