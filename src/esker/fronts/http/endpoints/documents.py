"""The API told by itself: `/openapi.json` for programs, `/docs` for people, both from the table of routes."""

from __future__ import annotations

import msgspec

from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.openapi import describe
from esker.fronts.http.page import render


async def get_openapi(call: Call) -> Answer:
    return Answer(msgspec.json.encode(describe(call.front.routes)), media=b"application/json")


async def get_docs(call: Call) -> Answer:
    return Answer(render(describe(call.front.routes)).encode(), media=b"text/html; charset=utf-8")
