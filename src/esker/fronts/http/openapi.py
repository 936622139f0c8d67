"""The table of routes as an OpenAPI 3.1 document. Schemas are those of the structs that decode and encode.

What a struct checks by itself it also tells (`msgspec.Meta`), as do the parameters of queries. What is checked behind
the decoder is told by the same constants. Three things a schema cannot say: a length in bytes, what of a node's state a
request needs, and that two values must differ or agree; descriptions do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from esker import __version__
from esker.fronts.access import Scope
from esker.fronts.http.endpoints.consumers import NAME_PATTERN
from esker.fronts.http.endpoints.snapshots import CHUNK_MAX
from esker.fronts.http.names import ROUTER_PATTERN, TOPIC_PATTERN
from esker.fronts.http.queries import Parameter
from esker.fronts.http.routes import Route
from esker.fronts.http.schemas import Schema, whole
from esker.node.staging import LOAD_PATTERN, NUMBER_MAX

_TEMPLATE = re.compile(r"\{(\w+)\}")
_NAMES: Final[dict[str, Schema]] = {
    "topic": {"type": "string", "pattern": whole(TOPIC_PATTERN)},
    "router": {"type": "string", "pattern": whole(ROUTER_PATTERN)},
    "wid": {"type": "string"},
    "consumer": {"type": "string", "pattern": whole(NAME_PATTERN)},
    "snapshot": {"type": "string"},
    "chunk": {"type": "integer", "minimum": 0, "maximum": CHUNK_MAX},
    "load": {"type": "string", "pattern": whole(LOAD_PATTERN)},
    "batch": {"type": "integer", "minimum": 0, "maximum": NUMBER_MAX},
    "part": {"type": "integer", "minimum": 0, "maximum": NUMBER_MAX},
}
_EXAMPLES: Final[dict[str, str | int]] = {
    "topic": "orders", "router": "orders->billing", "wid": "wid_4eJ8kQ", "consumer": "report", "snapshot": "5f3a",
    "chunk": 0, "load": "nightly", "batch": 7, "part": 0,
}  # fmt: skip
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
_RETRY: Final[Schema] = {"Retry-After": {"description": "seconds", "required": True, "schema": {"type": "integer"}}}
_ERROR_HEADERS: Final[dict[int, Schema]] = {
    401: {"WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}},
    429: _RETRY,
    503: _RETRY,
}
_STATUS_WORDS: Final = {
    200: "done", 201: "made", 400: "the request is not valid", 401: "a known key is needed",
    403: "this key may not, or a page of another site", 404: "it is not there",
    405: "not with this method", 406: "no such form",
    409: "what is there does not allow it", 410: "some of it is lost", 413: "the body is too large",
    415: "the body is not JSON", 422: "the topic is full", 429: "a limit is reached", 501: "not installed",
    503: "not now", 101: "a WebSocket", 202: "it will be done", 507: "the disk has no room for it",
}  # fmt: skip


def describe(routes: Iterable[Route], keys: bool = False, probe_auth: bool = False) -> Schema:
    """The whole document, of a node that wants `keys`, and if it does for probes too."""
    listed = tuple(routes)
    kinds = {kind for route in listed for kind in (route.body, route.answer) if kind is not None}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    shown, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    for kind in ordered:
        rules = getattr(kind, "rules", None)
        if rules is not None:
            components[kind.__name__] |= rules
    document = _Document(listed, dict(zip(ordered, shown, strict=True)), keys, probe_auth)
    paths: dict[str, dict[str, object]] = {}
    for route in listed:
        method = "get" if route.method == "WEBSOCKET" else route.method.lower()
        paths.setdefault(route.path, {})[method] = document.operation(route)
    schemes: Schema = {
        "key": {"type": "http", "scheme": "bearer"},
        "token": {"type": "apiKey", "in": "query", "name": "token", "description": "for what cannot set a header"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Esker", "version": __version__, "summary": "Event logs, lease queues and routers over HTTP"},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR, "Performance": _PERFORMANCE},
            **({"securitySchemes": schemes} if keys else {}),
        },
    }


class _Document:
    def __init__(self, routes: tuple[Route, ...], schemas: dict[type, Schema], keys: bool, probe_auth: bool) -> None:
        self._routes = routes
        self._schemas = schemas
        self._keys = keys
        self._probe_auth = probe_auth
        names = Counter(route.name for route in routes)
        self._names = {  # of operations: each has one of its own
            id(route): route.name if names[route.name] == 1 else route.name + re.sub(r"\W+", "_", route.path)
            for route in routes
        }

    def operation(self, route: Route) -> Schema:
        parameters: list[Schema] = [
            {"name": name, "in": "path", "required": True, "schema": _NAMES[name], "example": _EXAMPLES[name]}
            for name in _TEMPLATE.findall(route.path)
        ]
        parameters += [parameter.shown for parameter in route.query]
        parameters += [_header(parameter) for parameter in route.headers]
        operation: Schema = {
            "operationId": self._names[id(route)],
            "tags": [route.section],
            "summary": route.says,
            "parameters": parameters,
            "responses": self._responses(route),
        }
        if route.body is not None:
            operation["requestBody"] = {
                "required": not route.body_optional,
                "content": {"application/json": {"schema": self._schemas[route.body]}},
            }
        elif route.upload:
            operation["requestBody"] = {"required": True, "content": {route.upload: {}}}
        if self._asks(route):
            scopes = [part.name.lower() for part in Scope if part in route.needs and part.name]
            operation["security"] = [{"key": scopes}, *([{"token": scopes}] if route.token_in_query else [])]
        return operation

    def _asks(self, route: Route) -> bool:
        """Whether it wants a key, on this node."""
        return self._keys and not route.public and (not route.probe or self._probe_auth)

    def _responses(self, route: Route) -> Schema:
        responses: Schema = {}
        for status in route.statuses:
            responses[str(status)] = self._success(route, status)
        errors = {*route.errors, 403}  # a page of another site gets it everywhere
        if self._asks(route):
            errors |= {401}
        if not (route.public or route.probe):
            errors |= {429, 503}
        if route.body is not None:
            errors |= {413, 415}
        for status in sorted(errors):
            responses[str(status)] = {
                "description": _STATUS_WORDS[status],
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                **({"headers": _ERROR_HEADERS[status]} if status in _ERROR_HEADERS else {}),
            }
        return responses

    def _success(self, route: Route, status: int) -> Schema:
        schema: Schema = {} if route.answer is None else self._schemas[route.answer]
        if route.answer is not None and not route.probe:
            timed = {"type": "object", "properties": {"performance": {"$ref": "#/components/schemas/Performance"}}}
            schema = {"allOf": [schema, timed]}
        told: Schema = {"description": _STATUS_WORDS[status]}
        if status != 101:
            told["content"] = {route.media: {"schema": schema}, **{media: {} for media in route.other_media}}
        if route.told:
            told["headers"] = {
                header.name: {"description": header.says, "required": header.always, "schema": header.schema}
                for header in route.told
            }
        links = self._links(route)
        return {**told, "links": links} if links else told

    def _links(self, route: Route) -> Schema:
        """What can be done with that which a request made."""
        made, bodies = dict(route.makes), dict(route.hands)
        links: Schema = {}
        for other in self._routes:
            needed = _TEMPLATE.findall(other.path)
            if other is route or not needed or not made.keys() >= set(needed):
                continue
            if (bodies or other.stream is not None) and other.name not in bodies:
                continue
            link: Schema = {
                "operationId": self._names[id(other)],
                "parameters": {f"path.{name}": made[name] for name in needed},
            }
            if bodies:
                link["requestBody"] = bodies[other.name]
            links[self._names[id(other)]] = link
        return links


def _header(parameter: Parameter) -> Schema:
    shown = {**parameter.shown, "in": "header"}
    shown.pop("allowEmptyValue", None)  # which only a query has
    return shown
