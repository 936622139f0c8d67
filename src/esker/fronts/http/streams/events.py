"""The history of events as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from esker.columns.eventwish import COLUMNS, KINDS, Wanted
from esker.fronts.http.calls import Call
from esker.fronts.http.errors import HttpError, invalid
from esker.fronts.http.names import topic_name
from esker.fronts.http.streams.columns import need_arrow, stream_arrow
from esker.node.eventreading import EventsLost, EventsRefused, EventsWish

_POSITION_MAX: Final = 1 << 63
_TOPICS_MAX: Final = 1000
_STATUSES: Final = {"invalid_request": 400, "data_loss": 410}


async def read_events(call: Call) -> None:
    """Streams a range of the history."""
    await need_arrow(call)
    wish = EventsWish(_wanted(call), _position(call, "from"), _position(call, "to"))
    try:
        found = await call.front.broker.read_events(wish)
    except EventsRefused as error:
        raise HttpError(_STATUSES[error.code], error.code, str(error), error.detail) from error
    headers = [(b"esker-from", b"%d" % found.start), (b"esker-to", b"%d" % found.end)]
    try:
        await stream_arrow(call, headers, found.pieces())
    except EventsLost as error:
        raise HttpError(410, "data_loss", str(error)) from error


def _wanted(call: Call) -> Wanted:
    columns, kinds = _named(call, "columns", COLUMNS), _named(call, "kinds", KINDS)
    topics: frozenset[bytes] | None = None
    if (told := call.query.get("topics")) is not None:
        names = told.split(",")
        if len(names) > _TOPICS_MAX:
            raise invalid(f"topics has {len(names)} names; at most {_TOPICS_MAX}")
        topics = frozenset(topic_name(name, "topics:") for name in names)
        for name in topics:
            call.reach(name, in_body=True)
    return Wanted(
        COLUMNS if columns is None else tuple(columns),
        None if kinds is None else frozenset(kinds),
        topics,
        call.key.prefixes,
    )


def _named(call: Call, parameter: str, known: Sequence[str]) -> list[str] | None:
    """A list with commas, each of which is known and there once; None: it is not there."""
    told = call.query.get(parameter)
    if told is None or not told:
        return None
    names = told.split(",")
    for name in names:
        if name not in known:
            raise invalid(f"{parameter}: there is no {name[:64]!r}; there are {', '.join(known)}")
    if len(set(names)) < len(names):
        raise invalid(f"{parameter}: {told[:200]!r} names one twice")
    return names


def _position(call: Call, name: str) -> int | None:
    """A number of the query; None: it is not there."""
    told = call.query.get(name)
    if not told:
        return None
    if not (told.isascii() and told.isdigit() and len(told) <= 20 and 0 < int(told) < _POSITION_MAX):
        raise invalid(f"{name} is {told[:40]!r}; expected a position, which is a number from 1 on")
    return int(told)
