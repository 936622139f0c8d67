"""The history of events as columns."""

from __future__ import annotations

from typing import Final

from esker.columns.eventwish import COLUMNS, KINDS, Wanted
from esker.fronts.http.calls import Call
from esker.fronts.http.errors import HttpError
from esker.fronts.http.names import TOPIC_PATTERN, topic_name
from esker.fronts.http.queries import Number, Words
from esker.fronts.http.streams.columns import need_arrow, stream_arrow
from esker.node.eventreading import EventsLost, EventsRefused, EventsWish

_POSITION_MAX: Final = (1 << 63) - 1
FROM: Final = Number("from", "the first journal position; else the oldest there is", least=1, most=_POSITION_MAX)
TO: Final = Number("to", "the position behind the last; else all that is on disk", least=1, most=_POSITION_MAX)
WANTED_COLUMNS: Final = Words("columns", f"which, in this order; else {', '.join(COLUMNS)}", words=COLUMNS)
WANTED_TOPICS: Final = Words("topics", "only events of these topics", pattern=TOPIC_PATTERN, most=1000, empty=False)
WANTED_KINDS: Final = Words("kinds", "only events of these kinds", words=KINDS)
_STATUSES: Final = {"invalid_request": 400, "data_loss": 410}


async def read_events(call: Call) -> None:
    """Streams a range of the history."""
    await need_arrow(call)
    wish = EventsWish(_wanted(call), FROM.read(call), TO.read(call))
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
    columns, kinds, names = WANTED_COLUMNS.read(call), WANTED_KINDS.read(call), WANTED_TOPICS.read(call)
    topics: frozenset[bytes] | None = None
    if names is not None:
        topics = frozenset(topic_name(name, "topics:") for name in names)
        for name in topics:
            call.reach(name, in_body=True)
    return Wanted(
        COLUMNS if columns is None else tuple(columns),
        None if kinds is None else frozenset(kinds),
        topics,
        call.key.prefixes,
    )
