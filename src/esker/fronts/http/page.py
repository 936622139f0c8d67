"""The OpenAPI document as one plain page: no script, nothing fetched from elsewhere."""

from __future__ import annotations

from html import escape

import msgspec

from esker.fronts.http.schemas import Schema

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
code, pre { font: 14px/1.4 ui-monospace, monospace } pre { background: #f5f5f3; padding: .8rem; overflow: auto }
h2 { border-top: 1px solid #ddd; padding-top: 1rem; font-size: 1.1rem } h2 b { color: #06507a }
table { border-collapse: collapse } td, th { text-align: left; padding: .1rem 1rem .1rem 0; vertical-align: top }
"""


def render(document: Schema) -> str:
    paths = document["paths"]
    assert isinstance(paths, dict)
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>Esker: HTTP API</title>",
        f"<style>{_STYLE}</style></head><body><h1>Esker: HTTP API</h1>",
        '<p>The same as a document for programs: <a href="/openapi.json">/openapi.json</a>.</p>',
    ]
    for path, operations in paths.items():
        for method, operation in operations.items():
            parts.append(_operation(str(path), str(method), operation))
    components = document["components"]
    assert isinstance(components, dict)
    parts.append("<h1>Bodies</h1>")
    for name, schema in sorted(components["schemas"].items()):
        shown = msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
        parts.append(f'<h2 id="{escape(name)}">{escape(name)}</h2><pre>{escape(shown)}</pre>')
    return "".join([*parts, "</body></html>"])


def _operation(path: str, method: str, operation: dict[str, object]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(str(one['name']))}</code><td>{escape(str(one.get('description', 'in the path')))}"
        for one in _listed(operation["parameters"])
    )
    responses = operation["responses"]
    assert isinstance(responses, dict)
    answers = "".join(
        f"<tr><td>{escape(str(status))}<td>{escape(str(told['description']))}{_links(told)}"
        for status, told in responses.items()
    )
    body = operation.get("requestBody")
    return (
        f"<h2><b>{escape(method.upper())}</b> <code>{escape(path)}</code></h2>"
        f"<p>{escape(str(operation['summary']))}</p>"
        f"{'<p>Body:' + _links(body) + '</p>' if body is not None else ''}"
        f"<table>{rows}</table><table>{answers}</table>"
    )


def _listed(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def _links(part: object) -> str:
    """Links to every schema that a part of the document refers to."""
    names = sorted(_references(part))
    return "".join(f' <a href="#{escape(name)}">{escape(name)}</a>' for name in names)


def _references(part: object) -> set[str]:
    if isinstance(part, dict):
        found = {str(part["$ref"]).rpartition("/")[2]} if "$ref" in part else set()
        return found.union(*map(_references, part.values()))
    if isinstance(part, list):
        return set[str]().union(*map(_references, part))
    return set()
