"""Requests made from the document of the API, sensible and not: nothing breaks the server, what fits the document is
taken, what does not fit is refused, and answers fit it.

Every check of schemathesis runs. schemathesis.toml says what is beyond a document, and why.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

import esker.columns.incoming  # noqa: F401 else the node imports numpy in its thread while hypothesis looks for it
from esker.fronts.http.openapi import describe
from esker.fronts.http.routes import Route
from esker.fronts.http.table import ROUTES
from esker.testing.broker import Broker
from tests.fronts.http import api_hooks  # noqa: F401 registers them
from tests.fronts.http.web import KEYS

_WHOLE = tuple(route for route in ROUTES if route.endpoint is not None)  # a stream does not end by itself
_LINKED = {"/v0/topics/{topic}", "/v0/topics/{topic}/diff", "/v0/topics/{topic}/claim", "/v0/routers/{router}"}


def _problems(
    url: str, routes: Iterable[Route], key: str | None = None, examples: int = 8, **phases: bool
) -> list[str]:
    """Of a run over some routes."""
    told = tomllib.loads(Path(__file__).with_name("schemathesis.toml").read_text())
    del told["hooks"]  # they are imported above
    told |= {
        "base-url": url,
        "generation": {"max-examples": examples, "deterministic": True, "database": "none"},
        "phases": {
            name: {"enabled": phases.get(name, False)} for name in ("examples", "coverage", "fuzzing", "stateful")
        },
    }
    if key is not None:
        told["headers"] = {"Authorization": f"Bearer {key}"}
    document = describe(routes, keys=key is not None)
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig.from_dict(told))
    requests = 0
    problems: list[str] = []
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            requests += len(event.recorder.interactions)
            problems += [
                f"{check.name}: {check.failure_info.failure}\n{check.failure_info.code_sample}"
                for checks in event.recorder.checks.values()
                for check in checks
                if check.failure_info is not None
            ]
        elif isinstance(event, events.NonFatalError):
            problems.append(f"{event.label}: {event.value!r}")
        elif isinstance(event, events.FatalError):
            raise event.exception
    assert requests
    return problems


@pytest.mark.parametrize("path", dict.fromkeys(route.path for route in _WHOLE))
def test_the_document_says_what_is_taken_and_what_is_refused(shared_broker: Broker, path: str) -> None:
    routes = [route for route in _WHOLE if route.path == path]
    assert _problems(shared_broker.http_url, routes, coverage=True, fuzzing=True) == []


def test_what_was_made_can_be_used_by_its_links(shared_broker: Broker) -> None:
    routes = [route for route in _WHOLE if route.path in _LINKED]
    assert _problems(shared_broker.http_url, routes, stateful=True) == []


def test_every_route_but_the_public_ones_wants_a_key_as_the_document_says(guarded_broker: Broker) -> None:
    routes = [route for route in _WHOLE if route.path in _LINKED or route.public or route.probe]
    assert _problems(guarded_broker.http_url, routes, key=KEYS["all"], examples=1, coverage=True) == []
