"""Many watchers, slow ones, and the end of the node."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from esker.fronts.http.streams import outlets
from esker.testing.broker import Broker
from tests.fronts.http.streams.wire import Api, Events, eventually, seqs_of

WATCHERS = 1000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def connections(api: Api) -> int:
    """As the node counts them."""
    lines = api._client.get("/v0/metrics").text.splitlines()
    return next(int(float(line.split()[1])) for line in lines if line.startswith("topics_sse_connections"))


async def _follow(port: int, path: str, ready: asyncio.Semaphore, count: int) -> list[int]:
    """Reads records until it has `count` of them; `ready` is released once it has caught up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    found: list[int] = []
    while len(found) < count:
        line = (await reader.readline()).decode()
        if line.startswith("event: caught-up"):
            ready.release()
        elif line.startswith('data: {"topic"') and '"records"' in line:
            found += [record["$seq"] for record in json.loads(line[6:])["records"]]
    writer.close()
    return found


def test_a_thousand_watchers_get_every_record_once_and_in_order() -> None:
    records = 20

    async def scene(port: int, api: Api) -> list[list[int]]:
        ready = asyncio.Semaphore(0)
        wids = [api.watch({"t": {}}) for _ in range(WATCHERS)]
        tasks = [asyncio.create_task(_follow(port, f"/v0/watch/{wid}", ready, records)) for wid in wids]
        for _ in range(WATCHERS):
            await ready.acquire()
        for number in range(records):
            await asyncio.to_thread(api.write, "t", number)
        return await asyncio.gather(*tasks)

    with Broker() as node, Api(node.http_port) as api:
        api.put("t", durability="disk")
        everything = asyncio.run(scene(node.http_port, api))
    assert everything == [list(range(1, records + 1))] * WATCHERS


def test_a_reader_that_takes_nothing_costs_no_memory_and_goes_on_later() -> None:
    """40 MB are written behind a reader that has taken none of it; then it reads them all, in order."""
    blob = "x" * 100_000
    with Broker() as node, Api(node.http_port) as api:
        api.put("t", durability="ephemeral", cap_records=400)
        api.write("t", 0)
        wid = api.watch({"t": {}})
        with Events(node.http_port, f"/v0/watch/{wid}", receive_bytes=65_536) as slow:
            assert slow.seqs(1) == [1]
            for _ in range(50):
                api.write("t", blob)
            before = resident_bytes()
            for _ in range(350):
                api.write("t", blob)
            grown = resident_bytes() - before
            found: list[int] = []
            while not found or found[-1] < 401:
                frame = slow.next()
                if frame.event == "record":
                    found += seqs_of(frame)
        assert found == sorted(set(found))
        assert grown < 350 * 100_000 + 30_000_000, "the records themselves, and little besides"


def test_a_reader_that_takes_nothing_for_too_long_is_cut_and_can_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlets, "STALL_S", 0.5)
    with Broker() as node, Api(node.http_port) as api:
        api.put("t", durability="ephemeral")
        api.write("t", *range(3))
        wid = api.watch({"t": {}})
        with Events(node.http_port, f"/v0/watch/{wid}", receive_bytes=65_536) as slow:
            assert slow.seqs(3) == [1, 2, 3]
            position = slow.next("caught-up").id
            for _ in range(120):
                api.write("t", "x" * 100_000)
            eventually(lambda: connections(api) == 0)
            taken = 0
            while (frame := slow.frame()) is not None:
                taken += frame.event == "record"
            assert taken < 120, "it was cut before it got everything"
        with Events(node.http_port, f"/v0/watch/{wid}", last_id=position) as again:
            assert again.seqs(120) == list(range(4, 124))


def test_when_the_node_stops_streams_say_so_and_end() -> None:
    with Broker() as node:
        with Api(node.http_port) as api:
            api.write("t", 1)
            api.put("q", type="queue")
            wid = api.watch({"t": {}})
        with (
            Events(node.http_port, f"/v0/watch/{wid}") as watcher,
            Events(node.http_port, "/v0/topics/q/work?node=w") as worker,
            connect(f"ws://127.0.0.1:{node.http_port}/v0/ws") as socket,
        ):
            watcher.next("record")
            watcher.next("caught-up")
            worker.frame()
            socket.send('{"op":"ping"}')
            assert json.loads(socket.recv())["op"] == "pong"
            began = time.monotonic()
            node.stop()
            assert time.monotonic() - began < 5, "open streams do not hold up the end"
            for stream in (watcher, worker):
                assert stream.next("error").data["code"] == "server_shutting_down"
                assert stream.ended()
            assert json.loads(socket.recv())["code"] == "server_shutting_down"
            with pytest.raises(ConnectionClosed):
                socket.recv(timeout=5)


def test_a_stream_that_nobody_reads_does_not_hold_up_the_end_for_ever() -> None:
    with Broker() as node, Api(node.http_port) as api:
        api.put("t", durability="ephemeral")
        wid = api.watch({"t": {}})
        with Events(node.http_port, f"/v0/watch/{wid}", receive_bytes=4096):
            for _ in range(100):
                api.write("t", "x" * 100_000)
            began = time.monotonic()
            node.stop()
            assert time.monotonic() - began < 20


def test_a_closed_stream_is_forgotten() -> None:
    with Broker() as node, Api(node.http_port) as api:
        api.write("t", 1)
        wid = api.watch({"t": {}})
        for _ in range(3):
            with Events(node.http_port, f"/v0/watch/{wid}") as stream:
                stream.frame()
        eventually(lambda: connections(api) == 0)
