"""Loads in the life of a node: restarts, full topics, full disks, damage, many at once; every row exactly once."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

import esker.columns
from esker.fronts.http.endpoints import loads
from esker.journal.disk import RealDisk
from esker.node import loading
from esker.node.directory import FREE_BYTES_MIN
from esker.node.staging import Manifest, Staging
from esker.testing.broker import Broker
from esker.testing.faults import FaultyDisk
from tests.loads import Loader, error, stream

_WAIT_S = 20.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)  # it happens in another thread, and tells nobody


def _ask(broker: Broker, *words: object) -> object:
    with redis.Redis(port=broker.resp_port, protocol=2) as client:
        return client.execute_command(*words)


def _drain(broker: Broker, topic: str) -> list[bytes]:
    found: list[bytes] = []
    with redis.Redis(port=broker.resp_port, protocol=2) as client:
        while jobs := client.execute_command("GETJOB", "NOHANG", "COUNT", 1000, "FROM", topic):
            found += [job[2] for job in jobs]
            client.execute_command("FASTACK", *(job[1] for job in jobs))
    return found


def _files(broker: Broker) -> list[Path]:
    walk = os.walk(Path(broker.data) / "loads")  # unlike rglob, it may meet a folder that goes meanwhile
    return sorted(Path(folder, name) for folder, _, names in walk for name in names)


def _rows(count: int, first: int = 0) -> dict[str, object]:
    return {"value": [b"row %d" % number for number in range(first, first + count)]}


def _expected(count: int) -> Counter[bytes]:
    return Counter(b"row %d" % number for number in range(count))


def _waiting(loader: Loader, batch: int = 0) -> None:
    _until(lambda: loader.state(batch)["message"] is not None)


def test_a_load_that_waits_goes_on_after_a_restart(broker: Broker) -> None:
    _ask(broker, "PAUSE", "q", "in")
    with Loader(broker.http_url, "l") as loader:
        loader.commit([loader.stage(_rows(3000))], topic="q", type="queue")
        _waiting(loader)
        told = loader.state()
        assert (told["state"], told["published"]) == ("publishing", 0)
        assert "paused" in str(told["message"])
    broker.restart()
    with Loader(broker.http_url, "l") as loader:
        _waiting(loader)
        _ask(broker, "PAUSE", "q", "none")
        assert loader.ended()["published"] == 3000
        assert Counter(_drain(broker, "q")) == _expected(3000)
        _until(lambda: _files(broker) == [])
    broker.restart()
    with Loader(broker.http_url, "l") as loader:
        assert loader.state() == {
            "state": "done", "rows": 3000, "published": 3000, "message": None, "duplicate": False
        }  # fmt: skip
        assert loader.commit([], topic="q")["duplicate"] is True


def test_an_orderly_stop_in_the_middle_repeats_nothing(tmp_path: Path) -> None:
    """The share is small and others use the node, so the stop comes between two chunks; the next start goes on behind
    the mark."""
    with Broker(str(tmp_path / "data")) as broker:
        with Loader(broker.http_url, "l") as loader, _used(broker):
            loader.commit([loader.stage(_rows(6000))], topic="q", type="queue", share=0.05)
            _until(lambda: loader.state()["published"] != 0)
        broker.restart()
        with Loader(broker.http_url, "l") as loader:
            assert loader.ended()["published"] == 6000
        assert Counter(_drain(broker, "q")) == _expected(6000)


def test_a_full_topic_is_waited_for(broker: Broker) -> None:
    with Loader(broker.http_url, "l") as loader:
        loader.client.put("/v0/topics/q", json={"type": "queue", "cap_records": 1200, "discard": "reject"})
        loader.commit([loader.stage(_rows(2500))], topic="q")
        _waiting(loader)
        assert loader.state()["published"] == 1000
        found: list[bytes] = []
        while len(found) < 2500:
            found += _drain(broker, "q")
        assert loader.ended()["published"] == 2500
        assert Counter(found) == _expected(2500)


def test_a_batch_that_fails_tells_why_and_what_is_in_and_goes_on_when_it_can(broker: Broker) -> None:
    """The second topic becomes a log while the load waits for it, and later goes away again."""
    _ask(broker, "PAUSE", "two", "in")
    rows = _rows(900)
    columns = {**rows, "topic": ["one"] * 700 + ["two"] * 200}
    with Loader(broker.http_url, "l") as loader:
        loader.commit([loader.stage(columns)], type="queue")
        _waiting(loader)
        loader.client.delete("/v0/topics/two")
        loader.client.put("/v0/topics/two", json={"type": "log"})
        told = loader.ended()
        assert (told["state"], told["rows"], told["published"]) == ("failed", 900, 700)
        assert told["message"] == "topic 'two' is a log, and the load is for a queue"
    broker.restart()
    with Loader(broker.http_url, "l") as loader:
        assert loader.state()["state"] == "failed"
        other = loader.stage({**rows, "topic": ["one"] * 900}, attempt="b")
        assert loader.commit([other], type="queue")["duplicate"] is True
        assert loader.ended()["state"] == "failed", "its own parts were tried again"
        loader.client.delete("/v0/topics/two")
        assert loader.commit([], type="queue")["duplicate"] is True
        assert loader.ended()["published"] == 900
    assert Counter(_drain(broker, "one") + _drain(broker, "two")) == _expected(900)


def test_a_batch_that_failed_before_its_first_row_may_come_again_with_other_parts(broker: Broker) -> None:
    _ask(broker, "PAUSE", "q", "in")
    with Loader(broker.http_url, "l") as loader:
        loader.commit([loader.stage(_rows(10))], topic="q", type="queue")
        _waiting(loader)
        loader.client.delete("/v0/topics/q")
        loader.client.put("/v0/topics/q", json={"type": "log"})
        assert loader.ended()["state"] == "failed"
        better = loader.stage({"value": ["1", "2"]}, attempt="b")
        assert loader.commit([better], topic="q")["duplicate"] is False
        assert loader.ended()["published"] == 2
        assert loader.client.get("/v0/topics/q").json()["count"] == 2
        _until(lambda: _files(broker) == [])


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_part_that_is_lost_fails_the_batch_and_is_named(tmp_path: Path, damage: str) -> None:
    with Broker(str(tmp_path / "data")) as broker:
        _ask(broker, "PAUSE", "q", "in")
        with Loader(broker.http_url, "l") as loader:
            loader.commit([loader.stage(_rows(10))], topic="q", type="queue")
            _waiting(loader)
        broker.stop()
        (part,) = [path for path in _files(broker) if path.suffix == ".arrow"]
        if damage == "missing":
            part.unlink()
        else:
            part.write_bytes(part.read_bytes()[:100])
        broker.start()
        _ask(broker, "PAUSE", "q", "none")
        with Loader(broker.http_url, "l") as loader:
            told = loader.ended()
            assert told["state"] == "failed"
            told_as = "part 0-a1 cannot be read" if damage == "missing" else "part 0-a1 is damaged on disk"
            assert told_as in str(told["message"])
        assert _drain(broker, "q") == []


def test_a_manifest_that_cannot_be_read_is_told_and_the_node_starts(tmp_path: Path) -> None:
    with Broker(str(tmp_path / "data")) as broker:
        _ask(broker, "PAUSE", "q", "in")
        with Loader(broker.http_url, "l") as loader:
            loader.commit([loader.stage(_rows(10))], topic="q", type="queue")
        broker.stop()
        (manifest,) = [path for path in _files(broker) if path.suffix == ".json"]
        manifest.write_bytes(b"{")
        broker.start()
        with Loader(broker.http_url, "l") as loader:
            told = loader.state()
            assert told["state"] == "failed"
            assert "commit.json cannot be read" in str(told["message"])
            assert loader.commit(["0-a1"], topic="r", type="queue")["duplicate"] is False
            assert loader.ended()["published"] == 10


def test_what_nobody_committed_goes_after_a_day_and_what_was_cut_goes_at_once(tmp_path: Path) -> None:
    with Broker(str(tmp_path / "data")) as broker:
        with Loader(broker.http_url, "l") as loader:
            loader.stage(_rows(1), batch=1)
            loader.stage(_rows(1), batch=2)
        broker.stop()
        folders = {path.parent.name: path.parent for path in _files(broker)}
        (folders["batch=2"] / "0-b.1.upload").write_bytes(b"cut")
        long_ago = time.time() - 25 * 3600
        os.utime(folders["batch=1"], (long_ago, long_ago))
        broker.start()
        with Loader(broker.http_url, "l") as loader:
            _until(lambda: loader.state(1)["state"] == "unknown")
            assert loader.state(2)["state"] == "staged"
            loader.commit(["0-a1"], batch=2, topic="q", type="queue")
            assert loader.ended(2)["published"] == 1, "what was staged before the restart can be committed"
        assert [path.name for path in _files(broker)] == []


def test_a_client_that_dies_in_the_middle_leaves_nothing(broker: Broker) -> None:
    body = stream({"value": ["x" * 1000] * 5000})
    with socket.create_connection(("127.0.0.1", broker.http_port)) as connection:
        head = f"PUT /v0/loads/l/0/0?attempt=a1 HTTP/1.1\r\nHost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[: len(body) // 2])
        _until(lambda: _files(broker) != [])
    _until(lambda: _files(broker) == [])


def test_a_client_that_stands_still_loses_its_place(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "_IDLE_S", 0.2)
    with socket.create_connection(("127.0.0.1", broker.http_port), timeout=_WAIT_S) as connection:
        connection.sendall(
            b"PUT /v0/loads/l/0/0?attempt=a1 HTTP/1.1\r\nHost: localhost\r\ncontent-length: 1000\r\n\r\nhalf"
        )
        assert b" 400 " in connection.makefile("rb").readline()
    _until(lambda: _files(broker) == [])


def test_a_part_that_is_too_large_is_refused_and_leaves_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PART_BYTES_MAX", 1_000_000)
    with Loader(broker.http_url, "l") as loader:
        refusal = error(loader.put(stream({"value": [b"x" * 1000] * 5000})), 413)
        assert refusal["code"] == "payload_too_large"
        assert "send several" in str(refusal["message"])
        _until(lambda: _files(broker) == [])
        assert loader.put(stream(_rows(10))).status_code == 201


def test_what_is_too_much_at_once_is_told_to_come_later(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with Loader(broker.http_url, "l") as loader:
        name = loader.stage(_rows(10))
        with monkeypatch.context() as limits:
            limits.setattr(loading, "UPLOADS_MAX", 0)
            limits.setattr(loading, "BATCHES_MAX", 0)
            refused = loader.put(stream(_rows(10)), part=1)
            assert error(refused, 429)["code"] == "throttled"
            assert refused.headers["retry-after"]
            assert error(loader.try_commit([name], topic="q", type="queue"), 429)
        loader.commit([name], topic="q", type="queue")
        assert loader.ended()["published"] == 10


def test_a_disk_that_is_nearly_full_takes_no_parts(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with Broker(str(tmp_path / "data"), disk=disk) as broker, Loader(broker.http_url, "l") as loader:
        disk.limit_space(FREE_BYTES_MIN - 1)
        refusal = error(loader.put(stream(_rows(10))), 507)
        assert refusal["code"] == "insufficient_storage"
        assert "bytes left" in str(refusal["message"])
        disk.limit_space(None)
        loader.run(_rows(10), topic="q", type="queue")
        assert len(_drain(broker, "q")) == 10


class _Swept(RealDisk):
    """Just before a file is made, another thread removes its folders, which are empty."""

    def __init__(self) -> None:
        self.sweeps = 0

    def open(self, path: Path, create: bool = False) -> int:
        if create and not self.sweeps:
            self.sweeps += 1
            path.parent.rmdir()
            path.parent.parent.rmdir()
        return super().open(path, create)


def test_a_commit_makes_its_folder_again_when_another_batch_has_just_removed_it(tmp_path: Path) -> None:
    disk = _Swept()
    staging = Staging(tmp_path / "loads", disk)
    manifest = Manifest(
        load="l", batch=1, parts=[], topic=b"q", kind=None, create=True, config=None, value_format=None, share=0.5
    )
    staging.write_manifest(manifest)
    assert disk.sweeps == 1
    assert staging.manifest(manifest.place) == manifest


class _FullForParts(RealDisk):
    """Takes a million bytes of a part, and no more, while `full`."""

    def __init__(self) -> None:
        self.full = True
        self._parts: set[int] = set()

    def open(self, path: Path, create: bool = False) -> int:
        fd = super().open(path, create)
        (self._parts.add if path.suffix == ".upload" else self._parts.discard)(fd)
        return fd

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if self.full and fd in self._parts and offset > 1_000_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, data, offset)


def test_a_disk_that_fills_in_the_middle_refuses_the_part_and_keeps_nothing(tmp_path: Path) -> None:
    disk = _FullForParts()
    with Broker(str(tmp_path / "data"), disk=disk) as broker, Loader(broker.http_url, "l") as loader:
        refusal = error(loader.put(stream({"value": [b"x" * 1000] * 5000})), 507)
        assert "No space left" in str(refusal["message"])
        disk.full = False
        _until(lambda: _files(broker) == [])
        assert loader.state()["state"] == "unknown"
        loader.run(_rows(10), topic="q", type="queue")


def test_a_commit_that_the_disk_refuses_can_be_tried_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with Broker(str(tmp_path / "data"), disk=disk) as broker, Loader(broker.http_url, "l") as loader:
        name = loader.stage(_rows(10))
        disk.fail_sync(of=".upload")
        assert error(loader.try_commit([name], topic="q", type="queue"), 507)
        assert loader.state()["state"] == "staged"
        loader.commit([name], topic="q", type="queue")
        assert loader.ended()["published"] == 10


def test_without_pyarrow_a_node_says_what_to_install(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(esker.columns, "incoming", raising=False)
    monkeypatch.setitem(sys.modules, "esker.columns.incoming", None)
    with Loader(broker.http_url, "l") as loader:
        refusal = error(loader.put(stream(_rows(1))), 501)
        assert refusal["code"] == "not_available"
        assert "esker[archive]" in str(refusal["message"])


def test_loads_side_by_side_all_arrive_once(broker: Broker) -> None:
    def load(number: int) -> None:
        with Loader(broker.http_url, f"l{number}") as loader:
            names = [loader.stage(_rows(500, 2000 * number + 500 * part), part=part) for part in range(4)]
            loader.commit(names, topic="q", type="queue")
            assert loader.ended()["published"] == 2000

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(load, range(6)))
    assert Counter(_drain(broker, "q")) == _expected(12_000)


def test_commits_of_one_batch_at_the_same_moment_are_one(broker: Broker) -> None:
    start = threading.Barrier(6)

    def commit(number: int) -> bool:
        with Loader(broker.http_url, "l") as loader:
            name = loader.stage(_rows(100), attempt=f"{number}")
            start.wait(_WAIT_S)
            return loader.commit([name], topic="q", type="queue")["duplicate"] is False

    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(commit, range(6)))
    assert taken.count(True) == 1
    with Loader(broker.http_url, "l") as loader:
        assert loader.ended()["published"] == 100
    assert Counter(_drain(broker, "q")) == _expected(100)
    _until(lambda: _files(broker) == [])


@contextmanager
def _used(broker: Broker) -> Iterator[None]:
    """By a client that asks one thing after the other."""
    over = threading.Event()

    def use() -> None:
        with redis.Redis(port=broker.resp_port, protocol=2) as client:
            while not over.is_set():
                client.execute_command("QLEN", "other")

    with ThreadPoolExecutor(1) as pool:
        using = pool.submit(use)
        try:
            yield
        finally:
            over.set()
            using.result()


def _paused_s(broker: Broker) -> float:
    """How long loads have left the node to others, in all."""
    with redis.Redis(port=broker.resp_port, protocol=2) as client:
        return float(client.info("loads")["loads_paused_seconds"])


def test_a_share_holds_only_while_others_use_the_node(broker: Broker) -> None:
    with Loader(broker.http_url, "l") as loader:
        loader.client.put("/v0/topics/q", json={"type": "queue"})
    broker.restart()  # nobody has asked anything of it since
    with Loader(broker.http_url, "alone") as loader:
        loader.run(_rows(3000), topic="q", share=0.05)
    assert _paused_s(broker) == 0
    with Loader(broker.http_url, "beside") as loader, _used(broker):
        loader.run(_rows(3000), topic="q", share=0.05)
    assert _paused_s(broker) > 0


def test_loads_take_turns(broker: Broker) -> None:
    """A small load is done long before a large one that was committed first."""
    with Loader(broker.http_url, "large") as large, Loader(broker.http_url, "small") as small, _used(broker):
        large.commit([large.stage(_rows(20_000))], topic="q", type="queue", share=0.2)
        small.commit([small.stage(_rows(500))], topic="r", type="queue", share=0.2)
        assert small.ended()["published"] == 500
        assert large.state()["state"] == "publishing"
        assert large.ended()["published"] == 20_000


def test_an_ephemeral_topic_forgets_its_rows_and_never_sees_them_twice(tmp_path: Path) -> None:
    with Broker(str(tmp_path / "data")) as broker:
        with Loader(broker.http_url, "l") as loader:
            loader.client.put("/v0/topics/q", json={"type": "queue", "durability": "ephemeral"})
            with _used(broker):
                loader.commit([loader.stage(_rows(10_000))], topic="q", share=0.05)
                _until(lambda: loader.state()["published"] != 0)
                seen = _drain(broker, "q")
        broker.restart()
        with Loader(broker.http_url, "l") as loader:
            assert loader.ended()["published"] == 10_000
        seen += _drain(broker, "q")
    assert len(seen) == len(set(seen))


def test_copies_of_loaded_records_are_made_by_routers(broker: Broker) -> None:
    with Loader(broker.http_url, "l") as loader:
        for name in ("source", "copy"):
            loader.client.put(f"/v0/topics/{name}", json={"type": "log"})
        loader.client.put("/v0/routers/r", json={"source": "source", "dest": "copy"})
        loader.run({"value": [str(number) for number in range(1500)]}, topic="source")
        assert loader.client.get("/v0/topics/copy").json()["count"] == 1500
