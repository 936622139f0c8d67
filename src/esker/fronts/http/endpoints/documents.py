"""The API told by itself: `/openapi.json` for programs, `/docs` for people, both from the table of routes."""

from __future__ import annotations

import msgspec

from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.openapi import describe
from esker.fronts.http.page import render
from esker.fronts.http.schemas import Schema


async def get_openapi(call: Call) -> Answer:
    return Answer(msgspec.json.encode(_document(call)), media=b"application/json")


async def get_docs(call: Call) -> Answer:
    return Answer(render(_document(call)).encode(), media=b"text/html; charset=utf-8")


def _document(call: Call) -> Schema:
    """Of this node: keys are asked for only where it has some."""
    front = call.front
    return describe(front.routes, keys=front.keys.required, probe_auth=front.options.probe_auth)
