"""The mark that every HTTP/2 request gets on its way to its server."""

from __future__ import annotations

from functools import cache

import h2.config
import h2.connection
import h2.events
from hypothesis import given
from hypothesis import strategies as st

from esker.fronts.http.wire.connection import PREFACE
from esker.fronts.http.wire.marking import NAME, Marking

MARK = b"0123456789abcdef"
HEAD = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "x")]


@cache
def _said(sizes: tuple[int, ...]) -> bytes:
    """What a client sends: a request with so many headers for each, with many of them in several frames."""
    wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    wire.initiate_connection()
    for size in sizes:
        stream = wire.get_next_available_stream_id()
        headers = [*HEAD, (NAME.decode(), "forged"), *((f"x-{at}", "~" * 900) for at in range(size))]
        wire.send_headers(stream, headers, end_stream=size % 2 == 0)
        if size % 2:
            wire.send_data(stream, b"x" * (size % 7), end_stream=True)
        wire.ping(b"12345678")
    return bytes(wire.data_to_send())


@given(
    st.sampled_from([(), (0,), (1, 2, 0), (30, 1), (2, 30, 31, 0)]),
    st.lists(st.integers(1, 9) | st.integers(1, 30_000), max_size=60),
)
def test_however_the_bytes_come_each_request_ends_with_its_mark(sizes: tuple[int, ...], cuts: list[int]) -> None:
    said = _said(sizes)
    marking = Marking(MARK, len(PREFACE))
    passed = b""
    rest = said
    for cut in cuts:
        passed += marking.marked(rest[:cut])
        rest = rest[cut:]
    passed += marking.marked(rest)
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    events = server.receive_data(passed)
    requests = [event for event in events if isinstance(event, h2.events.RequestReceived)]
    assert len(requests) == len(sizes)
    for request in requests:
        assert request.headers is not None
        assert request.headers[-1] == (NAME, MARK)
        assert [value for name, value in request.headers if name == NAME] == [b"forged", MARK]
    ended = [event for event in events if isinstance(event, h2.events.StreamEnded)]
    pings = [event for event in events if isinstance(event, h2.events.PingReceived)]
    assert len(ended) == len(pings) == len(sizes)
