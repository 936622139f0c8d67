"""How the node is: alive, ready, and in numbers.

None of them waits for the disk, which may be the very thing that is wrong; what they tell of is a count at most.
"""

from __future__ import annotations

from msgspec import UNSET

from esker import __version__
from esker.fronts.http import metrics
from esker.fronts.http.answers import HealthAnswer, ReadyAnswer, encode
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.errors import HttpError

JSON = b"application/json"


async def get_health(call: Call) -> Answer:
    """Always 200 while the process can answer at all; the body says how well it does."""
    broker = call.front.broker
    stopped, problem = broker.stopped, broker.problem
    status = "stopped" if stopped is not None else "degraded" if problem is not None else "ok"
    answer = HealthAnswer(status, __version__, call.front.uptime_ms, str(stopped or problem or "") or UNSET)
    return Answer(encode(answer), media=JSON, lasting=True)


async def get_ready(call: Call) -> Answer:
    """A node reads its journal before it listens, so it is ready from its first answer until it or its shard stops."""
    broker = call.front.broker
    if call.front.stopping.is_set():
        return _not_ready("shutting_down", "the node is stopping")
    if broker.stopped is not None:
        return _not_ready("not_ready", str(broker.stopped))
    if broker.stalled is not None:
        return _not_ready("not_ready", broker.stalled)
    ready = ReadyAnswer("ready", True, problem=broker.problem)
    if not call.front.keys.required:
        ready.topics = broker.counts()[0]  # anyone may ask this, so it is shown only where anyone may know
    return Answer(encode(ready), media=JSON, lasting=True)


def _not_ready(code: str, why: str) -> Answer:
    error = HttpError(503, code, why)
    return Answer(error.body(), error.status, headers=tuple(error.headers), media=JSON, lasting=True)


async def get_metrics(call: Call) -> Answer:
    """JSON and OpenMetrics are for those who say so: anyone else gets the text that every scraper reads."""
    accept = (call.header(b"accept") or b"").lower()
    if b"application/json" in accept:
        return Answer(encode(metrics.as_object(call.front, call.key)), lasting=True)
    if b"application/openmetrics-text" in accept:
        return Answer(await metrics.as_openmetrics(call.front, call.key), media=metrics.OPENMETRICS, lasting=True)
    return Answer(await metrics.as_text(call.front, call.key), media=metrics.TEXT, lasting=True)
