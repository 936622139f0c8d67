"""One real node for the tests that share it; each test uses queues of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from esker.testing.broker import Broker
from tests.fronts.resp.wire import Wire

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A node of its own, for tests that change what all clients share."""
    with Broker() as running:
        yield running


@pytest.fixture
def wire(shared_broker: Broker) -> Iterator[Wire]:
    with Wire(shared_broker.resp_port) as connected:
        yield connected


@pytest.fixture
def other(shared_broker: Broker) -> Iterator[Wire]:
    with Wire(shared_broker.resp_port) as connected:
        yield connected


@pytest.fixture
def queue() -> bytes:
    return b"queue-%d" % next(_numbers)
