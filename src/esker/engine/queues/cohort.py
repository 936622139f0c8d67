"""Claims that share: many consumers served in one pass, so that none drains the head of the queue alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from esker.engine import commands, limits
from esker.engine.config import Pause
from esker.engine.queues import consume
from esker.engine.replies import CohortLeased, Delivery, Leased, Reply
from esker.engine.topics import not_found

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def share_evenly(wanted: Sequence[int], available: int) -> list[int]:
    """How many each gets when they are dealt out one by one, round and round, to whoever still wants.

    >>> share_evenly([10, 10, 1], 12)
    [6, 5, 1]
    """
    shares = [0] * len(wanted)
    open_seats = [seat for seat, most in enumerate(wanted) if most > 0]
    while open_seats and available > 0:
        # Whole rounds at once: as many as the most modest takes part in, and as the supply lasts.
        rounds = min(min(wanted[seat] - shares[seat] for seat in open_seats), available // len(open_seats))
        if rounds == 0:
            for seat in open_seats[:available]:
                shares[seat] += 1
            break
        for seat in open_seats:
            shares[seat] += rounds
        available -= rounds * len(open_seats)
        open_seats = [seat for seat in open_seats if shares[seat] < wanted[seat]]
    return shares


def lease_cohort(machine: Machine, command: commands.LeaseCohort, now: int) -> Reply:
    """As `share_evenly` says, and interleaved: in every round each gets the best job that is left.

    How many jobs there are to share turns out only on the way, because some have expired or go to the dead letters.
    """
    topic = machine.names.get(command.topic)
    if topic is None:
        return not_found(command.topic)
    if not topic.is_queue:
        return consume.not_a_queue(topic)
    claims = command.claims
    shares: list[list[Delivery]] = [[] for _ in claims]
    left = 0 if topic.pause & Pause.OUT else consume.lease_room(machine, topic, limits.LEASE_JOBS_MAX, now)
    seats = [seat for seat, claim in enumerate(claims) if claim.count > 0]
    while seats and left > 0:
        for seat in seats[:left]:
            delivery = consume.deliver_next(machine, topic, claims[seat], now)
            if delivery is None:
                seats = []
                break
            shares[seat].append(delivery)
            left -= 1
        seats = [seat for seat in seats if len(shares[seat]) < claims[seat].count]
    ready = consume.ready_count(topic)
    return CohortLeased([Leased(share, ready) for share in shares])
