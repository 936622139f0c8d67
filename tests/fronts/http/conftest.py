"""One real node for the tests that share it, spoken to in HTTP/1.1 and in HTTP/2; each test has topics of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import httpx
import pytest

from esker.testing.broker import Broker
from tests.fronts.http.web import KEYS, Web

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def guarded_broker() -> Iterator[Broker]:
    """One that wants keys."""
    with Broker(api_keys=",".join(KEYS.values())) as running:
        yield running


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def web(request: pytest.FixtureRequest, shared_broker: Broker) -> Iterator[Web]:
    with Web(shared_broker.http_url, http2=request.param == "HTTP/2") as connected:
        yield connected


@pytest.fixture
def one(shared_broker: Broker) -> Iterator[Web]:
    """For what does not depend on the protocol's version."""
    with Web(shared_broker.http_url) as connected:
        yield connected


@pytest.fixture
def own() -> Iterator[Broker]:
    """A node that the test has for itself, and may stop."""
    with Broker() as running:
        yield running


@pytest.fixture
def own_web(own: Broker) -> Iterator[Web]:
    with Web(own.http_url) as connected:
        yield connected


@pytest.fixture
def guarded(guarded_broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=guarded_broker.http_url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"
