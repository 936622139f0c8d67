"""Requests made from the document of the API, sensible and not: nothing breaks the server, and answers fit it."""

from __future__ import annotations

from typing import Protocol

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

import esker.columns.incoming  # noqa: F401 else the node imports numpy in its thread while hypothesis looks for it
from esker.fronts.http.openapi import describe
from esker.fronts.http.routes import Route
from esker.fronts.http.table import ROUTES
from esker.testing.broker import Broker


class _Case(Protocol):
    """As much of a request of schemathesis as is used here."""

    body: object

    def call_and_validate(self, *, base_url: str, checks: list[CheckFunction]) -> object: ...


_OPERATIONS = tuple(route for route in ROUTES if route.endpoint is not None)
_SCHEMA = schemathesis.openapi.from_dict(describe(_OPERATIONS))


@pytest.mark.parametrize("route", _OPERATIONS, ids=lambda route: f"{route.method} {route.path}")
def test_no_request_breaks_the_server(shared_broker: Broker, route: Route) -> None:
    operation = _SCHEMA[route.path][route.method]

    @hypothesis.given(case=operation.as_strategy() | operation.as_strategy(schemathesis.GenerationMode.NEGATIVE))
    @hypothesis.settings(
        max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    def probe(case: _Case) -> None:
        if isinstance(case.body, dict) and "wait_ms" in case.body:
            case.body["wait_ms"] = 0
        case.call_and_validate(
            base_url=shared_broker.http_url, checks=[not_a_server_error, response_schema_conformance]
        )

    probe()
