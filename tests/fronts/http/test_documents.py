"""The API describes itself, completely and truthfully."""

from __future__ import annotations

import re

from esker.fronts.http.openapi import describe
from esker.fronts.http.table import ROUTES
from tests.fronts.http.web import Web, part


def test_every_route_is_in_the_document(one: Web) -> None:
    document = one.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    told = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert told == {(route.path, "GET" if route.method == "WEBSOCKET" else route.method) for route in ROUTES}


def test_no_two_routes_share_a_path_and_method() -> None:
    assert len({(route.path, route.method) for route in ROUTES}) == len(ROUTES)
    for route in ROUTES:
        assert (route.endpoint is None) != (route.stream is None)


def test_every_reference_leads_somewhere() -> None:
    document = describe(ROUTES)
    schemas = part(part(document, "components"), "schemas")
    references = re.findall(r"#/components/schemas/([^']+)'", str(document))
    assert references
    assert set(references) <= schemas.keys()


def test_the_page_names_every_path_and_fetches_nothing(one: Web) -> None:
    response = one.client.get("/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    for route in ROUTES:
        assert f"<code>{route.path}</code>" in response.text
    assert "<script" not in response.text
    assert "http://" not in response.text
    assert "https://" not in response.text
