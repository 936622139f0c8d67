"""The API describes itself, completely and truthfully."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import msgspec

from esker.columns import jobs, records
from esker.engine import limits
from esker.fronts.http import page
from esker.fronts.http.endpoints import bulk, snapshots
from esker.fronts.http.openapi import describe
from esker.fronts.http.streams import messages, watch
from esker.fronts.http.table import ROUTES
from tests.fronts.http.web import Web, part
from tests.fronts.http.web import listed as entries


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


def test_a_node_that_wants_no_key_does_not_ask_for_one(one: Web, guarded: httpx.Client) -> None:
    def asking(document: dict[str, object]) -> set[str]:
        paths = part(document, "paths")
        return {path for path in paths for method in part(paths, path) if "security" in part(part(paths, path), method)}

    assert asking(one.client.get("/openapi.json").json()) == set()
    assert asking(guarded.get("/openapi.json").json()) == {
        route.path for route in ROUTES if not (route.public or route.probe)
    }


def test_columns_are_listed_as_they_are() -> None:
    assert tuple(records.FIELDS) == bulk.COLUMNS
    assert tuple(jobs.FIELDS) == snapshots.COLUMNS


def test_bounds_are_those_of_the_server() -> None:
    schemas = part(part(describe(ROUTES), "components"), "schemas")

    def field(body: str, name: str) -> dict[str, object]:
        return part(part(part(schemas, body), "properties"), name)

    listed = field("WriteBody", "records")
    assert (listed["minItems"], listed["maxItems"]) == (1, limits.ENQUEUE_JOBS_MAX)
    assert field("ClaimBody", "max")["maximum"] == 2**64 - 1
    assert field("ClaimBody", "node")["maxLength"] == limits.NODE_BYTES_MAX
    assert "additionalProperties" not in part(schemas, "WriteBody"), "unknown fields are ignored"
    assert [each["required"] for each in entries(part(schemas, "DeleteBody"), "anyOf")] == [["before_seq"], ["match"]]


def test_links_lead_to_operations_that_are_there() -> None:
    document = describe(ROUTES)
    paths = part(document, "paths")
    operations = [part(part(paths, path), method) for path in paths for method in part(paths, path)]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    links = re.findall(r"'operationId': '(\w+)', 'parameters': \{'path", str(document))
    assert {"get_topic", "read_diff", "ack_jobs", "delete_snapshot", "get_router"} <= set(links) <= set(names)


def test_the_contents_of_the_page_lead_to_every_operation(one: Web) -> None:
    text = one.client.get("/docs").text
    targets = set(re.findall(r'id="([^"]+)"', text))
    links = re.findall(r'href="#([^"]+)"', text)
    assert len([link for link in links if link.startswith("op-")]) == len(ROUTES)
    assert set(links) <= targets


def test_the_page_tells_every_event_and_message_of_streams() -> None:
    streams = Path(watch.__file__).parent
    source = "".join((streams / name).read_text() for name in ("watch.py", "work.py"))
    sent = set(re.findall(r'(?:frame\(|event = |event, data = )b"([a-z-]+)"', source))
    assert sent == {name for name, _ in (*messages.WATCH_EVENTS, *messages.WORK_EVENTS)}
    operations = set(re.findall(r'op\\?"\s*:\s*\\?"(\w+)', (streams / "socket.py").read_text()))
    assert operations <= {name for name, _ in messages.ANSWERS}


def test_the_examples_of_the_page_are_taken() -> None:
    """Each sample is a body that its struct decodes."""
    kinds = {route.body.__name__: route.body for route in ROUTES if route.body is not None}
    for name, text in page.SAMPLES.items():
        msgspec.json.decode(text, type=kinds[name])
