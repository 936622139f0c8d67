"""The table of routes as an OpenAPI 3.1 document. Schemas are those of the structs that decode and encode."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from esker import __version__
from esker.fronts.access import Scope
from esker.fronts.http.bodies import Selector
from esker.fronts.http.routes import Route

Schema = dict[str, object]

_TEMPLATE = re.compile(r"\{(\w+)\}")
_NAMES: Final[dict[str, Schema]] = {
    "topic": {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._:\-]{0,254}$"},
    "router": {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._:>\-]{0,254}$"},
    "wid": {"type": "string", "pattern": r"^[A-Za-z0-9_\-]{1,64}$"},
    "consumer": {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._:\-]{0,127}$"},
    "snapshot": {"type": "string", "pattern": r"^[0-9a-f]{1,64}$"},
    "chunk": {"type": "integer", "minimum": 0},
    "load": {"type": "string", "pattern": r"^[A-Za-z0-9._\-]{1,128}$"},
    "batch": {"type": "integer", "minimum": 0},
    "part": {"type": "integer", "minimum": 0},
}
_ERROR: Final[Schema] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string", "minLength": 1},
                "detail": {"type": "object"},
            },
            "additionalProperties": False,
        }
    },
}
_PERFORMANCE: Final[Schema] = {
    "type": "object",
    "required": ["server_total_ms"],
    "properties": {
        "server_total_ms": {"type": "number"},
        "fsync_ms": {"type": "number"},
        "records_scanned": {"type": "integer"},
        "cold_segments_read": {"type": "integer"},
    },
}
_STATUS_WORDS: Final = {
    200: "done", 201: "made", 400: "the request is not valid", 401: "a known key is needed",
    403: "this key may not", 404: "it is not there", 405: "not with this method", 406: "no such form",
    409: "what is there does not allow it", 410: "some of it is lost", 413: "the body is too large",
    415: "the body is not JSON", 422: "the topic is full", 429: "a limit is reached", 501: "not installed",
    503: "not now", 101: "a WebSocket", 202: "it will be done", 507: "the disk has no room for it",
}  # fmt: skip


def describe(routes: Iterable[Route]) -> Schema:
    """The whole document."""
    listed = tuple(routes)
    kinds = {kind for route in listed for kind in (route.body, route.answer) if kind is not None}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    shown, components = msgspec.json.schema_components((*ordered, Selector), ref_template="#/components/schemas/{name}")
    schemas = dict(zip(ordered, shown, strict=False))
    paths: dict[str, dict[str, object]] = {}
    for route in listed:
        method = "get" if route.method == "WEBSOCKET" else route.method.lower()
        paths.setdefault(route.path, {})[method] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Esker", "version": __version__, "summary": "Event logs, lease queues and routers over HTTP"},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR, "Performance": _PERFORMANCE},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schemas: dict[type, Schema]) -> Schema:
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": _NAMES[name]} for name in _TEMPLATE.findall(route.path)
    ]
    for parameter in route.query:
        schema: Schema = {"type": parameter.kind}
        if parameter.default is not None:
            schema["default"] = parameter.default
        parameters.append(
            {"name": parameter.name, "in": "query", "required": parameter.required, "description": parameter.says,
             "schema": schema}
        )  # fmt: skip
    operation: Schema = {
        "operationId": route.name,
        "summary": route.says,
        "parameters": parameters,
        "responses": _responses(route, schemas),
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/json": {"schema": schemas[route.body]}},
        }
    if not (route.public or route.probe):
        operation["security"] = [{"key": [part.name.lower() for part in Scope if part in route.needs and part.name]}]
    return operation


def _responses(route: Route, schemas: dict[type, Schema]) -> Schema:
    responses: Schema = {}
    for status in route.statuses:
        schema: Schema = {} if route.answer is None else schemas[route.answer]
        if route.answer is not None and not route.probe:
            timed = {"type": "object", "properties": {"performance": {"$ref": "#/components/schemas/Performance"}}}
            schema = {"allOf": [schema, timed]}
        content = {"content": {route.media: {"schema": schema}}} if status != 101 else {}
        responses[str(status)] = {"description": _STATUS_WORDS[status], **content}
    errors = set(route.errors)
    if not route.public:
        errors |= {401}
    if not (route.public or route.probe):
        errors |= {403, 429}
    if route.body is not None:
        errors |= {413, 415}
    for status in sorted(errors):
        responses[str(status)] = {
            "description": _STATUS_WORDS[status],
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
    return responses
