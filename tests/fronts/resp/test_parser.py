"""The parser gives the same commands however the stream is cut, and breaks only with Redis's own words."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esker.fronts.resp import parser as parsing
from esker.fronts.resp.parser import Parser, PatientParser, ProtocolError

Arguments = list[bytes]


def wire(*arguments: bytes) -> bytes:
    return b"*%d\r\n" % len(arguments) + b"".join(b"$%d\r\n%b\r\n" % (len(a), a) for a in arguments)


def read(chunks: list[bytes], trusted: bool = True) -> tuple[list[Arguments], str | None]:
    parser = Parser(trusted)
    commands: list[Arguments] = []
    for chunk in chunks:
        commands += parser.feed(chunk)
        while parser.more:
            commands += parser.feed(b"")
    return commands, str(parser.error) if parser.error else None


def read_patiently(data: bytes) -> tuple[list[Arguments], str | None]:
    commands: list[Arguments] = []
    try:
        PatientParser().feed(data, commands)
    except ProtocolError as broken:
        return [c for c in commands if c], str(broken)
    return [c for c in commands if c], None


ARGUMENT = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [b"", b"\r\n", b"+OK\r\n", b"a\r\n+b", b"a\r\n:1\r\n", b"*1\r\n$4\r\nPING\r\n", b"$-1\r\n", b"x" * 3000]
    ),
)
COMMAND = st.one_of(
    st.lists(ARGUMENT, min_size=1, max_size=5).map(lambda arguments: wire(*arguments)),
    st.sampled_from([b"*0\r\n", b"*-1\r\n", b"PING\r\n", b"\r\n", b"SET \"a b\" 'c'\n", wire(*[b"x"] * 120)]),
)
JUNK = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from(
            [b"*", b"$", b"\r\n", b"1", b"2", b"-1", b"+a\r\n", b":3\r\n", b"*2\r\n", b"$1\r\n", b"a\r\n", b"%1\r\n",
             b"_\r\n", b"~1\r\n", b"#f\r\n", b"=5\r\ntxt:a\r\n", b",1.5\r\n", b"-ERR\r\n", b"*-1\r\n", b"$-1\r\n",
             b"(12\r\n", b"*99999\r\n", b"*1\rX$4\r\nPING\r\n", b"*1\r\n$1\r\naXX:1\r\n", b"XX",
             b'"', b" ", b"*01\r\n", b"*1000000000\r\n"]
        ),
        max_size=14,
    ).map(b"".join),
)  # fmt: skip


@st.composite
def cut(draw: st.DrawFn, streams: st.SearchStrategy[bytes]) -> list[bytes]:
    data = draw(streams)
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    edges = [0, *places, len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]


@settings(max_examples=400, deadline=None)
@given(cut(st.lists(COMMAND, max_size=8).map(b"".join)))
def test_a_stream_gives_the_same_commands_wherever_it_is_cut(chunks: list[bytes]) -> None:
    assert read(chunks) == read_patiently(b"".join(chunks))


@settings(max_examples=200, deadline=None)
@given(st.lists(COMMAND, max_size=5).map(b"".join))
def test_a_stream_gives_the_same_commands_byte_by_byte(data: bytes) -> None:
    assert read([data[i : i + 1] for i in range(len(data))]) == read_patiently(data)


def test_a_chunk_torn_anywhere_is_read_alike() -> None:
    """Every cut of every length of argument: what hiredis is fed behind a torn chunk must never become part of it."""
    for length in (0, 1, 2, 3, 4, 5, 9, 10, 11):
        data = wire(b"PING") + wire(b"ADDJOB", b"q", b"x" * length) + wire(b"PING")
        for at in range(len(data) + 1):
            assert read([data[:at], data[at:]]) == read_patiently(data)


@settings(max_examples=1000, deadline=None)
@given(cut(st.tuples(st.lists(COMMAND, max_size=3).map(b"".join), JUNK).map(b"".join)))
def test_junk_breaks_the_stream_alike_in_both_parsers_and_keeps_what_came_before(chunks: list[bytes]) -> None:
    commands, error = read(chunks)
    expected, expected_error = read_patiently(b"".join(chunks))
    assert commands == expected
    assert error == expected_error


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"*1048577\r\n", "Protocol error: invalid multibulk length"),
        (b"*x\r\n", "Protocol error: invalid multibulk length"),
        (b"*1\r\n$536870913\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n+OK\r\n", "Protocol error: expected '$', got '+'"),
        (b"*1\r\n:1\r\n", "Protocol error: expected '$', got ':'"),
        (b"*1\r\n*1\r\n$1\r\na\r\n", "Protocol error: expected '$', got '*'"),
        (b"a" * 65_537, "Protocol error: too big inline request"),
        (b"*" + b"1" * 65_537, "Protocol error: too big mbulk count string"),
        (b"*1\r\n$" + b"1" * 65_537, "Protocol error: too big bulk count string"),
        (b'SET "a\r\n', "Protocol error: unbalanced quotes in request"),
        (b'SET "a"b\r\n', "Protocol error: unbalanced quotes in request"),
    ],
)
def test_a_protocol_error_has_the_words_of_redis(data: bytes, text: str) -> None:
    good = wire(b"PING")
    assert read([good + data]) == ([[b"PING"]], text)


def test_nothing_is_read_after_a_protocol_error() -> None:
    assert read([b"*x\r\n", wire(b"PING")]) == ([], "Protocol error: invalid multibulk length")


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        (b"PING\r\n", [b"PING"]),
        (b"  PING\t a  \n", [b"PING", b"a"]),
        (b'ECHO "a\\x41\\n\\"q\\\\"\r\n', [b"ECHO", b'aA\n"q\\']),
        (b"ECHO 'it\\'s \\n'\r\n", [b"ECHO", b"it's \\n"]),
        (b'ECHO ""\r\n', [b"ECHO", b""]),
    ],
)
def test_a_line_is_cut_by_the_quoting_rules_of_redis(line: bytes, arguments: Arguments) -> None:
    assert read([line]) == ([arguments], None)


def test_a_huge_array_length_allocates_nothing() -> None:
    """hiredis would make a list of a thousand million places at once."""
    parser = Parser()
    assert parser.feed(wire(b"PING") + b"*1000000000\r\n") == [[b"PING"]]
    assert str(parser.error) == "Protocol error: invalid multibulk length"
    assert Parser().feed(b"*1000000000") == []


def test_a_large_argument_in_small_pieces_is_read_in_linear_time() -> None:
    body = bytes(range(256)) * 40_000
    data = wire(b"ADDJOB", b"q", body, b"0") + wire(b"PING")
    parser = Parser()
    commands: list[Arguments] = []
    for at in range(0, len(data), 1000):  # 10,000 pieces: a rescan of each would take minutes
        commands += parser.feed(data[at : at + 1000])
    assert commands == [[b"ADDJOB", b"q", body, b"0"], [b"PING"]]
    assert parser.buffered == 0


def test_a_stranger_may_send_little_until_the_password_was_given() -> None:
    assert read([wire(*[b"x"] * 11)], trusted=False)[1] == "Protocol error: unauthenticated multibulk length"
    assert read([wire(b"x" * 16_385)], trusted=False)[1] == "Protocol error: unauthenticated bulk length"
    parser = Parser(trusted=False)
    assert parser.feed(wire(b"AUTH", b"secret") + wire(b"ADDJOB", b"q", b"x" * 20_000, b"0")) == [[b"AUTH", b"secret"]]
    assert parser.more
    parser.trusted = True
    assert parser.feed(b"") == [[b"ADDJOB", b"q", b"x" * 20_000, b"0"]]
    assert not parser.more


def test_an_unfinished_command_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "QUERY_BYTES_MAX", 1000)
    assert read([b"*3\r\n$900\r\n" + b"a" * 900 + b"\r\n$900\r\n" + b"b" * 600])[1] == (
        "Protocol error: query buffer limit exceeded"
    )


def test_a_large_argument_is_whole_however_it_is_cut() -> None:
    large = bytes(range(256)) * 1024
    data = wire(b"ADDJOB", b"q", large, b"0") + wire(b"PING")
    for cut in (10, 1000, 100_000, len(data) // 2, len(data) - 60, len(data) - 30, len(data) - 29, len(data) - 20):
        for size in (len(data), 50_000, 4096):
            parser = Parser()
            found: list[Arguments] = parser.feed(data[:cut])
            for at in range(cut, len(data), size):
                found += parser.feed(data[at : at + size])
            assert found == [[b"ADDJOB", b"q", large, b"0"], [b"PING"]]
            assert parser.buffered == 0


def test_an_argument_beyond_what_the_server_allows_ends_the_stream() -> None:
    for size in (100_001, 300_000):
        parser = Parser(bulk_bytes_max=100_000)
        data = wire(b"PING") + wire(b"ADDJOB", b"q", b"x" * size, b"0")
        assert parser.feed(data) == [[b"PING"]]
        assert "at most 100000" in str(parser.error)
    parser = Parser(bulk_bytes_max=100_000)
    assert parser.feed(wire(b"ADDJOB", b"q", b"x" * 90_000, b"0")) != []
