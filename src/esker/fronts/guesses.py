"""How often secrets may be tried: a rate for each address, and one for all addresses together.

The problem: a secret is compared in microseconds, so without a limit one client tries a hundred thousand in a second.
The idea: an attempt takes a place before its secret is looked at, and gets it back when the secret was right. Where no
place is left, attempts wait for theirs, without being looked at: a guess that is not waited for is not made.

Well-behaved clients behind the address of a guesser:
* Those that are logged in are not concerned. Over the Redis protocol that is a connection; over HTTP it is a connection
  whose last secret was right, as long as it sends the same one.
* New ones wait for a place with the guesses, `WAIT_S_MAX` at most. A connection that fails is answered late
  (`penalty_s`), so one that guesses again and again takes about a place a second, and leaves the others free.
* The rate of all addresses together does not apply to an address that has not failed lately.

Memory is bounded: `ADDRESSES_MAX` addresses are known, those that failed last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final

ADDRESS_PER_S: Final = 50  # attempts of one address, once its burst is used up
ADDRESS_BURST: Final = 50  # that an address may make without waiting: a pool of clients with an old secret, say
ALL_PER_S: Final = 200
ALL_BURST: Final = 200
WAIT_S_MAX: Final = 2.0  # an attempt that would wait longer is refused: its client may try again
ADDRESSES_MAX: Final = 10_000  # about 1 MB
PENALTY_S_MIN: Final = 0.05  # before the first failure of a connection is told; doubled with each
PENALTY_S_MAX: Final = 1.0


class Rate:
    """Places, `burst` at once and `per_s` of them in a second."""

    __slots__ = ("_span", "_step", "full_at")

    def __init__(self, per_s: int, burst: int) -> None:
        self._step = 1 / per_s
        self._span = (burst - 1) / per_s
        self.full_at = 0.0  # when every place is free again

    def wait_s(self, now: float) -> float:
        """Until the next place is free."""
        return max(0.0, self.full_at - self._span - now)

    def take(self, now: float) -> None:
        self.full_at = max(self.full_at, now) + self._step

    def give_back(self) -> None:
        self.full_at -= self._step


class Place:
    """Of one attempt. `cancel` when its secret was right, or was never looked at."""

    __slots__ = ("_rates", "wait_s")

    def __init__(self, rates: tuple[Rate, ...], wait_s: float) -> None:
        self._rates = rates
        self.wait_s = wait_s  # before the secret may be looked at

    def cancel(self) -> None:
        for rate in self._rates:
            rate.give_back()
        self._rates = ()


class Guesses:
    """Of all fronts of a node. `clock` tells seconds; it never goes back."""

    __slots__ = ("_addresses", "_all", "_clock", "refused")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, Rate] = OrderedDict()  # the one that tried last is last
        self._all = Rate(ALL_PER_S, ALL_BURST)
        self.refused = 0  # attempts that found no place

    def place(self, address: str) -> Place | None:
        """For one attempt. None: there is none to be had soon."""
        now = self._clock()
        rate = self._addresses.get(address)
        fresh = rate is None or rate.full_at <= now
        crowded = rate is None and len(self._addresses) >= ADDRESSES_MAX
        if rate is None:
            rate = Rate(ADDRESS_PER_S, ADDRESS_BURST)
        rates = (rate,) if fresh and not crowded else (rate, self._all)
        place = self._place(rates, now)
        if place is not None:
            self._addresses[address] = rate
            self._addresses.move_to_end(address)
            while len(self._addresses) > ADDRESSES_MAX:
                self._addresses.popitem(last=False)
        return place

    def _place(self, rates: tuple[Rate, ...], now: float) -> Place | None:
        wait_s = max(rate.wait_s(now) for rate in rates)
        if wait_s > WAIT_S_MAX:
            self.refused += 1
            return None
        for rate in rates:
            rate.take(now)
        return Place(rates, wait_s)


def penalty_s(failures: int) -> float:
    """How late a failure is told to a connection that has failed so often, this one included."""
    return float(min(PENALTY_S_MAX, PENALTY_S_MIN * 2 ** min(failures - 1, 10)))


def address_of(peername: object) -> str:
    """What is counted as one: an IPv4 address, or the network of an IPv6 address that one owner has (/64)."""
    text = str(peername[0]) if isinstance(peername, tuple) and peername else "?"
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if not isinstance(found, IPv6Address):
        return text
    return str(found.ipv4_mapped) if found.ipv4_mapped else (found.packed[:8]).hex()
