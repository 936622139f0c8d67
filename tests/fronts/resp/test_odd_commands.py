"""Whatever a client sends as a command, it gets exactly one reply and the connection goes on."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from esker.fronts.resp.commands import COMMANDS
from tests.fronts.resp.wire import NullArray, Simple, Wire

# These end the connection or the server, change what every client gets, or wait on purpose.
LEFT_OUT = {
    b"MULTI",  # has tests of its own: what comes behind it is kept
    b"QUIT",
    b"SHUTDOWN",
    b"MONITOR",
    b"HELLO",
    b"CLIENT",
    b"DEBUG",
    b"CONFIG",
    b"CLUSTER",
    b"GETJOB",
    b"GETJOBS",
}

WORDS = b"""
    COUNT FROM NOHANG TIMEOUT WITHCOUNTERS RETRY TTL DELAY MAXLEN REPLICATE ASYNC PRIORITY STATE QUEUE REPLY BUSYLOOP
    MINLEN MAXIDLE IMPORTRATE all id in CREATE CONFIG DELETE INFO LIST PURGE REPLAY EXTEND GET LEN RESET DOCS LATEST
    HISTORY GRAPH DOCTOR lease_ms dead_letter backoff.factor mode partitions max nan 1e9 0 1 -1 7 100
    18446744073709551616 -9223372036854775808 9223372036854775807 odd-queue odd-queue-2
    D-0f0c644f-abcdefghijklmnopqrstuvwx-05a1
""".split()
WORDS += [b"", *(b"DI" + digit * 44 + b"SQ" for digit in (b"0", b"f", b"z"))]
ARGUMENT = st.one_of(st.sampled_from(WORDS), st.binary(max_size=12))
NAME = st.sampled_from(sorted(set(COMMANDS) - LEFT_OUT))


@settings(
    max_examples=1500, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(name=NAME, arguments=st.lists(ARGUMENT, max_size=7))
def test_any_command_gets_one_reply_and_the_connection_goes_on(wire: Wire, name: bytes, arguments: list[bytes]) -> None:
    wire(name, *arguments)
    assert wire("PING") == Simple("PONG")


@settings(
    max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(subcommands=st.lists(ARGUMENT, max_size=5))
def test_getjob_that_does_not_hang_always_answers(wire: Wire, subcommands: list[bytes]) -> None:
    reply = wire("GETJOB", "NOHANG", *subcommands)
    assert isinstance(reply, list | str | NullArray)
