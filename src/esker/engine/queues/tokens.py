"""Fencing tokens: a number made for each lease, so that who was too slow cannot settle a lease of its successor.

    without a taker:  0 | 62 random bits
    with one:         1 | 30 bits of the taker | 32 random bits

The *taker* is who took the lease where it has no name that is stored with it: a connection of the Redis front. Its
clients may settle jobs without naming a token, as Disque's do; the token that the job keeps anyway says whose it is,
so that this costs no memory.

The tokens of jobs that are leased together are in a row, with one taker.
"""

from __future__ import annotations

from random import Random

from esker.engine import limits

TAKER_BITS = 30
_RANDOM_BITS = 32
_TAKEN = 1 << (TAKER_BITS + _RANDOM_BITS)


def first_token(dice: Random, taker: int) -> int:
    """The first of up to `LEASE_JOBS_MAX` tokens in a row. `taker` 0: none."""
    if not taker:
        return 1 + dice.getrandbits(62) % (_TAKEN - 1 - limits.LEASE_JOBS_MAX)
    assert 0 < taker < 1 << TAKER_BITS, taker
    return (
        _TAKEN | taker << _RANDOM_BITS | dice.getrandbits(_RANDOM_BITS) % ((1 << _RANDOM_BITS) - limits.LEASE_JOBS_MAX)
    )


def taker_of(token: int) -> int:
    """Who took the lease of this token; 0: nobody that it says."""
    return token - _TAKEN >> _RANDOM_BITS if token >= _TAKEN else 0
