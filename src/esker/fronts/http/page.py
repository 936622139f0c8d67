"""The OpenAPI document as one plain page: no script, nothing fetched from elsewhere."""

from __future__ import annotations

import re
from html import escape
from typing import Final

import msgspec

from esker.fronts.http.schemas import Schema
from esker.fronts.http.streams import messages

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
code, pre { font: 14px/1.4 ui-monospace, monospace } pre { background: #f5f5f3; padding: .8rem; overflow: auto }
h2 { border-top: 1px solid #ddd; padding-top: 1rem; font-size: 1.1rem } h2 b { color: #06507a }
table { border-collapse: collapse; margin: .6rem 0 }
td, th { text-align: left; padding: .1rem 1rem .1rem 0; vertical-align: top }
nav { columns: 2; font-size: 14px } nav div { break-inside: avoid; margin-bottom: .6rem } nav a { display: block }
a { color: #06507a } nav a { text-decoration: none; overflow-wrap: anywhere }
"""
SAMPLES: Final[dict[str, str]] = {
    "WriteBody": '{"records": [{"data": {"id": 1}}]}',
    "DeleteBody": '{"before_seq": 100}',
    "ReplayBody": '{"count": 10}',
    "RouterBody": '{"source": "orders", "dest": "billing"}',
    "ClaimBody": '{"node": "worker-1"}',
    "AckBody": '{"node": "worker-1", "seqs": [1]}',
    "NackBody": '{"node": "worker-1", "seqs": [1]}',
    "ExtendBody": '{"node": "worker-1", "seqs": [1], "lease_ms": 30000}',
    "WatchBody": '{"topics": {"orders": {}}}',
    "ConsumerBody": '{"topics": {"orders": {"0": 17}}}',
    "CommitBody": '{"parts": ["0-a1"], "topic": "orders"}',
}  # what a request needs at least; those that are not here need nothing


def render(document: Schema) -> str:
    paths = document["paths"]
    assert isinstance(paths, dict)
    listed = [
        (str(path), str(method), operation)
        for path, operations in paths.items()
        for method, operation in operations.items()
    ]
    components = document["components"]
    assert isinstance(components, dict)
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>Esker: HTTP API</title>",
        f"<style>{_STYLE}</style></head><body><h1>Esker: HTTP API</h1>",
        '<p>The same as a document for programs: <a href="/openapi.json">/openapi.json</a>.</p>',
        "<p>In the examples <code>$ESKER</code> is the address of the node, and <code>$KEY</code> your key.</p>",
        _contents(listed),
        *(_operation(*each) for each in listed),
        _streams(),
        '<h1 id="bodies">Bodies</h1>',
    ]
    for name, schema in sorted(components["schemas"].items()):
        shown = msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
        parts.append(f'<h2 id="{escape(name)}">{escape(name)}</h2><pre>{escape(shown)}</pre>')
    return "".join([*parts, "</body></html>"])


def _contents(listed: list[tuple[str, str, Schema]]) -> str:
    sections: dict[str, list[str]] = {}
    for path, method, operation in listed:
        (section,) = _words(operation["tags"])
        link = f'<a href="#op-{_id(operation)}">{escape(method.upper())} {escape(path)}</a>'
        sections.setdefault(section, []).append(link)
    sections["more"] = ['<a href="#streams">What streams say</a>', '<a href="#bodies">Bodies</a>']
    told = (f"<div><b>{escape(name)}</b>{''.join(links)}</div>" for name, links in sections.items())
    return f"<nav>{''.join(told)}</nav>"


def _operation(path: str, method: str, operation: Schema) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(str(one['name']))}</code><td>{escape(str(one.get('description', 'in the path')))}"
        f"<td>{escape(_bounds(one['schema']))}"
        for one in _listed(operation["parameters"])
    )
    responses = operation["responses"]
    assert isinstance(responses, dict)
    answers = "".join(
        f"<tr><td>{escape(str(status))}<td>{escape(str(told['description']))}{_links(told.get('content'))}"
        for status, told in responses.items()
    )
    body = operation.get("requestBody")
    return (
        f'<h2 id="op-{_id(operation)}"><b>{escape(method.upper())}</b> <code>{escape(path)}</code></h2>'
        f"<p>{escape(str(operation['summary']))}</p>"
        f"{'<p>Body: ' + (_links(body) or _media(body)) + '</p>' if body is not None else ''}"
        f"<table>{rows}</table><table>{answers}</table>"
        f"{'' if '101' in responses else '<pre>' + escape(_example(path, method, operation)) + '</pre>'}"
    )


def _example(path: str, method: str, operation: Schema) -> str:
    """A request that can be pasted. The name of the node is that of a shell variable."""
    query: list[str] = []
    for one in _listed(operation["parameters"]):
        if one["in"] == "path":
            path = path.replace(f"{{{one['name']}}}", str(one["example"]))
        elif one.get("required"):
            query.append(f"{one['name']}=a1")
    words = ["curl"] if method == "get" else ["curl", "-X", method.upper()]
    if "text/event-stream" in str(operation["responses"]):
        words.append("-N")
    if "security" in operation:
        words.append('-H "Authorization: Bearer $KEY"')
    body = operation.get("requestBody")
    names = [name for name in sorted(_references(body)) if name in SAMPLES]
    if names:
        words.append(f"-H 'Content-Type: application/json' -d '{SAMPLES[names[0]]}'")
    elif isinstance(body, dict) and "application/json" not in str(body):
        words.append("--data-binary @part.arrow")
    return " ".join([*words, f'"$ESKER{path}{"?" + "&".join(query) if query else ""}"'])


def _bounds(schema: object) -> str:
    """What a parameter takes, in few words."""
    if not isinstance(schema, dict):
        return ""
    told = []
    if "enum" in schema:
        told.append(", ".join(map(str, schema["enum"])))
    elif schema.get("type") == "integer" and schema.get("minimum", -1) >= 0:
        told.append(f"{schema['minimum']} to {schema['maximum']}")
    if "default" in schema:
        told.append(f"default {schema['default']}")
    return "; ".join(told)


def _streams() -> str:
    return (
        '<h1 id="streams">What streams say</h1>'
        "<h2>GET <code>/v0/watch/{wid}</code>: events</h2>"
        "<p>The data of each is a JSON object. Its id is a position: a client that comes back with it as "
        "<code>Last-Event-ID</code> goes on there. A comment <code>: hb</code> comes when there is nothing else.</p>"
        f"{_table(messages.WATCH_EVENTS)}"
        "<h2>GET <code>/v0/topics/{topic}/work</code>: events</h2>"
        "<p>Jobs are acked by ordinary requests. Those that are not go back when the connection ends.</p>"
        f"{_table(messages.WORK_EVENTS)}"
        "<h2>WebSocket <code>/v0/ws</code>: messages</h2>"
        "<p>JSON texts both ways, each with its <code>op</code>. A <code>request_id</code>, any JSON, is echoed.</p>"
        f"<h3>From the client</h3>{_table(messages.REQUESTS)}<h3>From the server</h3>{_table(messages.ANSWERS)}"
    )


def _table(rows: messages.Table) -> str:
    return (
        "<table>"
        + "".join(f"<tr><td><code>{escape(name)}</code><td>{escape(says)}" for name, says in rows)
        + "</table>"
    )


def _id(operation: Schema) -> str:
    return re.sub(r"\W", "-", str(operation["operationId"]))


def _words(value: object) -> list[str]:
    assert isinstance(value, list)
    return value


def _listed(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def _links(part: object) -> str:
    """Links to every schema that a part of the document refers to."""
    names = sorted(_references(part))
    return "".join(f' <a href="#{escape(name)}">{escape(name)}</a>' for name in names)


def _media(body: object) -> str:
    assert isinstance(body, dict)
    return ", ".join(f"<code>{escape(media)}</code>" for media in body["content"])


def _references(part: object) -> set[str]:
    if isinstance(part, dict):
        found = {str(part["$ref"]).rpartition("/")[2]} if "$ref" in part else set()
        return found.union(*map(_references, part.values()))
    if isinstance(part, list):
        return set[str]().union(*map(_references, part))
    return set()
