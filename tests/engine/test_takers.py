"""Who took a lease: its token says so, and settling without a token asks for it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.engine import limits
from esker.engine.commands import Ack, Extend, Lease, LeaseCohort, Nack, Working
from esker.engine.config import TopicConfig
from esker.engine.queues.tokens import TAKER_BITS, first_token, taker_of
from esker.engine.replies import CohortLeased, Delivery, Done, Extended, Leased, Reply, StillWorking
from esker.errors import Code, Refusal
from tests.engine.audit import audit
from tests.engine.dump import dump
from tests.engine.rig import Q, Rig, expect

MINE, OTHER = 7, (1 << TAKER_BITS) - 1


def take(rig: Rig, count: int = 1, taker: int = MINE) -> list[Delivery]:
    return list(expect(Leased, rig.do(Lease(Q, count, taker=taker))).deliveries)


def settled(reply: Reply) -> int:
    """How many jobs a command settled."""
    if isinstance(reply, Refusal):
        assert reply.code == Code.STALE_TOKEN
        return 0
    if isinstance(reply, StillWorking):
        return 1
    return reply.count if isinstance(reply, Done) else len(expect(Extended, reply).deadlines_ms)


SETTLING: list[Callable[..., Nack | Extend | Working]] = [
    lambda job, takers, token=None: Nack([job.id], None if token is None else [token], takers=takers),
    lambda job, takers, token=None: Extend([job.id], 5000, None if token is None else [token], takers),
    lambda job, takers, token=None: Working(job.id, token, takers),
]


@given(st.integers(0, (1 << TAKER_BITS) - 1), st.integers(0, 1 << 32))
def test_a_token_tells_its_taker_and_so_do_all_in_a_row(taker: int, seed: int) -> None:
    token = first_token(Random(seed), taker)
    for each in (token, token + limits.LEASE_JOBS_MAX - 1):
        assert 0 < each < 1 << 63
        assert taker_of(each) == taker


@pytest.mark.parametrize("command", SETTLING)
@pytest.mark.parametrize("count", [1, 3])
def test_only_the_taker_settles_a_lease_without_its_token(command: Callable[..., Nack], count: int) -> None:
    rig = Rig(TopicConfig())
    rig.add_many(*[b"x"] * count)
    for job in take(rig, count):
        before = dump(rig.machine)
        assert settled(rig.do(command(job, [OTHER]))) == 0
        assert settled(rig.do(command(job, []))) == 0
        assert dump(rig.machine) == before
        assert settled(rig.do(command(job, [OTHER, MINE]))) == 1
        audit(rig.machine)


@pytest.mark.parametrize("command", SETTLING)
def test_a_token_needs_no_taker_and_a_stale_one_is_refused_to_anybody(command: Callable[..., Nack]) -> None:
    rig = Rig(TopicConfig(lease_ms=1000))
    rig.add()
    (first,) = take(rig)
    rig.pass_ms(1000)
    (second,) = take(rig, taker=OTHER)
    assert settled(rig.do(command(second, [MINE, OTHER], first.token))) == 0
    assert settled(rig.do(command(second, [], second.token))) == 1


@pytest.mark.parametrize("command", SETTLING)
def test_a_lease_without_a_taker_and_a_caller_that_asks_for_none_are_free(command: Callable[..., Nack]) -> None:
    rig = Rig(TopicConfig())
    rig.add_many(b"1", b"2")
    (job,) = take(rig, taker=0)
    assert settled(rig.do(command(job, [MINE]))) == 1
    job = take(rig, 2)[-1]
    assert settled(rig.do(command(job, None))) == 1


def test_a_lease_that_has_ended_belongs_to_nobody_even_before_the_clock_said_so() -> None:
    rig = Rig(TopicConfig(lease_ms=1000))
    rig.add()
    (job,) = take(rig)
    rig.now += 1000
    assert settled(rig.do(Nack([job.id], takers=[OTHER]))) == 1


def test_the_answer_names_the_takers_it_met() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(*[b"x"] * 4)
    jobs = [*take(rig, 2), *take(rig, 1, OTHER), *take(rig, 1, 9)]
    done = expect(Done, rig.do(Nack([job.id for job in jobs], takers=[9])))
    assert done == Done(1, [job.id for job in jobs[:3]], (MINE, OTHER))
    assert rig.refused(Working(jobs[2].id, takers=[9])).detail == {"taker": OTHER}


def test_an_ack_without_a_token_is_anybodys_and_tokens_may_be_mixed_with_none() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(*[b"x"] * 3)
    one, two, three = take(rig, 3)
    assert expect(Done, rig.do(Ack([one.id, two.id, three.id], [None, two.token, 1]))) == Done(2, [three.id])
    assert dump(rig.replayed()) == dump(rig.machine)


def test_claims_that_share_have_takers_of_their_own() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(*[b"x"] * 4)
    reply = rig.do(LeaseCohort(Q, [Lease(Q, 2, taker=MINE), Lease(Q, 2, taker=OTHER)]))
    shares = expect(CohortLeased, reply).shares
    assert [[taker_of(job.token) for job in share.deliveries] for share in shares] == [[MINE, MINE], [OTHER, OTHER]]
