"""How the node is: alive, ready, and in numbers."""

from __future__ import annotations

from msgspec import UNSET

from esker import __version__
from esker.fronts.http.answers import HealthAnswer, ReadyAnswer, encode
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.errors import HttpError
from esker.fronts.http.metrics import as_object, as_text, collect

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
JSON = b"application/json"


async def get_health(call: Call) -> Answer:
    """Always 200 while the process can answer at all; the body says how well it does."""
    broker = call.front.broker
    stopped, problem = broker.stopped, broker.problem
    status = "stopped" if stopped is not None else "degraded" if problem is not None else "ok"
    answer = HealthAnswer(status, __version__, call.front.uptime_ms, str(stopped or problem or "") or UNSET)
    return Answer(encode(answer), media=JSON)


async def get_ready(call: Call) -> Answer:
    """A node reads its journal before it listens, so it is ready from its first answer until it or its shard stops."""
    broker = call.front.broker
    if call.front.stopping.is_set():
        raise HttpError(503, "shutting_down", "the node is stopping")
    if broker.stopped is not None:
        raise HttpError(503, "not_ready", str(broker.stopped))
    return Answer(encode(ReadyAnswer("ready", True, broker.counts()[0], broker.problem or UNSET)), media=JSON)


async def get_metrics(call: Call) -> Answer:
    metrics = collect(call.front)
    if b"application/json" in (call.header(b"accept") or b"").lower():
        return Answer(encode(as_object(metrics)))
    return Answer(as_text(metrics), media=TEXT)
