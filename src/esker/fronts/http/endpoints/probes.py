"""How the node is: alive, ready, and in numbers."""

from __future__ import annotations

from esker import __version__
from esker.fronts.http.answers import HealthAnswer, ReadyAnswer, encode
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.errors import HttpError
from esker.fronts.http.metrics import as_object, as_text, collect

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
JSON = b"application/json"


async def get_health(call: Call) -> Answer:
    """Always 200 while the process can answer at all."""
    return Answer(encode(HealthAnswer("ok", __version__, call.front.uptime_ms)), media=JSON)


async def get_ready(call: Call) -> Answer:
    """A node reads its journal before it listens, so it is ready from its first answer until it stops."""
    if call.front.stopping.is_set():
        raise HttpError(503, "shutting_down", "the node is stopping")
    answer = ReadyAnswer("ready", True)
    if not call.front.keys.required:
        answer.topics = call.front.broker.counts()[0]  # anyone may ask this, so it is told only where anyone may know
    return Answer(encode(answer), media=JSON)


async def get_metrics(call: Call) -> Answer:
    metrics = collect(call.front, call.key)
    if b"application/json" in (call.header(b"accept") or b"").lower():
        return Answer(encode(as_object(metrics)))
    return Answer(as_text(metrics), media=TEXT)
