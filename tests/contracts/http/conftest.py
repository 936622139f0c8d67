"""One real node for all tests of the HTTP contract; each test has topics of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.contracts.http.api import Api
from tests.crash.process import NodeProcess

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def http_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("contract") / "data", "--set", "min_heartbeat_ms=50") as node:
        yield node


@pytest.fixture(scope="session", params=["HTTP/1.1", "h2c"])
def api(request: pytest.FixtureRequest, http_node: NodeProcess) -> Iterator[Api]:
    with Api(http_node.http_port, http2=request.param == "h2c") as connected:
        yield connected


@pytest.fixture(scope="session")
def one(http_node: NodeProcess) -> Iterator[Api]:
    """For what does not depend on the version of HTTP."""
    with Api(http_node.http_port) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"
