"""A shape takes the place of parsing, so it may say nothing that the parser would not say."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from esker.fronts.resp.parser import Parser
from esker.fronts.resp.shapes import Shapes

payload = st.sampled_from([b"", b"x", b"yy", b"0123456789", b"\r\n$1\r\n0\r\n", b"*4\r\n$6\r\nADDJOB\r\n"])


def wire(queue: bytes, payloads: list[bytes], name: bytes = b"ADDJOB", timeout: bytes = b"0") -> bytes:
    return b"".join(
        b"*4\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in (name, queue, some, timeout))
        for some in payloads
    )


@given(payloads=st.lists(payload, min_size=1, max_size=5), others=st.lists(payload, min_size=1, max_size=5))
def test_what_a_shape_reads_the_parser_reads_too(payloads: list[bytes], others: list[bytes]) -> None:
    shapes = Shapes()
    shapes.learn(b"q", payloads, wire(b"q", payloads))
    for data in (wire(b"q", payloads), wire(b"q", others), wire(b"Q", payloads), wire(b"q", payloads, timeout=b"1")):
        found = shapes.split(data)
        if found is not None:
            queue, read = found
            assert Parser().feed(data) == [[b"ADDJOB", queue, each, b"0"] for each in read]


@given(
    size=st.integers(0, 12),
    count=st.integers(1, 4),
    place=st.integers(0, 400),
    change=st.binary(min_size=1, max_size=12),
)
@example(size=1, count=2, place=27, change=b"2")
def test_a_chunk_that_was_tampered_with_is_read_as_the_parser_reads_it(
    size: int, count: int, place: int, change: bytes
) -> None:
    data = wire(b"queue", [b"p" * size] * count)
    shapes = Shapes()
    shapes.learn(b"queue", [b"p" * size] * count, data)
    at = place % len(data)
    tampered = (data[:at] + change + data[at + len(change) :])[: len(data)]
    found = shapes.split(tampered)
    if found is not None:
        assert Parser().feed(tampered) == [[b"ADDJOB", b"queue", each, b"0"] for each in found[1]]


@given(
    count=st.integers(1, 5),
    size=st.integers(0, 12),
    place=st.integers(0, 1000),
    change=st.binary(min_size=0, max_size=60),
    shift=st.integers(0, 3),
)
@example(count=2, size=1, place=0, change=b"", shift=1)  # together they read well, but none of them alone
def test_chunks_read_together_are_read_as_each_alone(
    count: int, size: int, place: int, change: bytes, shift: int
) -> None:
    one = wire(b"q", [b"p" * size])
    shapes = Shapes()
    shapes.learn(b"q", [b"p" * size], one)
    stream = one * count
    at = place % len(stream)
    stream = (stream[:at] + change + stream[at + len(change) :])[: len(stream)]
    cuts = [0, *(number * len(one) + shift for number in range(1, count)), len(stream)]
    chunks = [stream[begin:end] for begin, end in pairwise(cuts)]
    found = shapes.split_alike(shapes.known[len(one)], chunks)
    if found is not None:
        for chunk, read in zip(chunks, found, strict=True):
            assert Parser().feed(chunk) == [[b"ADDJOB", b"q", read, b"0"]]
    elif not change and not shift:
        raise AssertionError("nothing was wrong with them")


def test_payloads_of_the_learned_size_are_read_whatever_they_hold() -> None:
    shapes = Shapes()
    shapes.learn(b"q", [b"a" * 9, b"b" * 9], wire(b"q", [b"a" * 9, b"b" * 9]))
    hostile = [b"\r\n$1\r\n0\r\n", b"*4\r\n$6\r\nA"]
    assert shapes.split(wire(b"q", hostile)) == (b"q", hostile)


def test_payloads_of_mixed_sizes_are_left_to_the_parser() -> None:
    shapes = Shapes()
    shapes.learn(b"q", [b"aa", b"bb"], wire(b"q", [b"aa", b"bb"]))
    assert shapes.split(wire(b"q", [b"a", b"bbb"])) is None
    mixed = wire(b"q", [b"a", b"bbb"])
    shapes.learn(b"q", [b"a", b"bbb"], mixed)
    assert shapes.split(mixed) is None


def test_another_queue_of_the_same_length_is_not_mistaken() -> None:
    shapes = Shapes()
    shapes.learn(b"q1", [b"p"], wire(b"q1", [b"p"]))
    assert shapes.split(wire(b"q2", [b"p"])) is None
