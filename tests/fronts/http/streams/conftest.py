"""One real node for the tests that share it; each test uses topics of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from esker.testing.broker import Broker
from tests.fronts.http.streams.wire import Api, Events, work_path

_numbers = itertools.count(1)
Opener = Callable[..., Events]


@pytest.fixture(scope="session")
def shared_node() -> Iterator[Broker]:
    with Broker(min_heartbeat_ms="50") as running:
        yield running


@pytest.fixture
def api(shared_node: Broker) -> Iterator[Api]:
    with Api(shared_node.http_port) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


@pytest.fixture
def follow(api: Api) -> Iterator[Opener]:
    """Opens the stream of a session; it is closed when the test ends."""
    opened: list[Events] = []

    def open_stream(wid: str, last_id: str | None = None, key: str | None = None, receive_bytes: int = 0) -> Events:
        opened.append(Events(api.port, f"/v0/watch/{wid}", last_id, key, receive_bytes))
        return opened[-1]

    yield open_stream
    for one in opened:
        one.close()


@pytest.fixture
def work(api: Api) -> Iterator[Opener]:
    """Opens a stream of jobs; it is closed when the test ends."""
    opened: list[Events] = []

    def open_stream(queue: str, node: str, **query: object) -> Events:
        opened.append(Events(api.port, work_path(queue, node=node, **query)))
        return opened[-1]

    yield open_stream
    for one in opened:
        one.close()
