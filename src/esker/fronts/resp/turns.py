"""Who executes when, and for how long: the one place that bounds what a client may take of the event loop.

The problem: a client may send any number of commands at once, and some commands cost milliseconds. Whatever runs to its
end holds up everybody else.
The idea: a turn has a budget of time, divided among the clients that have something to execute. A client stops behind
the command that used up its share, and goes on in a later turn. Between two turns the loop reads and writes sockets.

* Who has just sent something goes first; those who had a share before and are not done come behind, in a circle. So a
  client that sends little waits for one turn, however many others send much.
* Everybody's turn has at least one command, and every turn has at least one client of the circle: all get on.
* Time that a client does not use is left to those behind it.
* Jobs that are gathered across clients run outside of a share, so they are bounded by number: what exceeds
  `GATHERED_JOBS_MAX` goes the ordinary way.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

# For the commands of one turn. What others wait for is about twice that, with the write to disk and one command that
# began within it. Shorter turns cost throughput: each ends with a write of its own.
TURN_NS: Final = 8_000_000

# Plain ADDJOBs gathered in one turn: about 3 us each with their replies and their part of the journal.
GATHERED_JOBS_MAX: Final = 3000
# The same of one client: a longer pipeline runs in its own share.
GATHERED_JOBS_PER_CLIENT_MAX: Final = 1000

# A larger chunk is parsed in the client's own share, and no more is read until then.
PARSED_LATER_BYTES: Final = 64 * 1024

# Bytes of later commands that may wait for one client; beyond, its socket is not read.
WAITING_BYTES_MAX: Final = 1024 * 1024


class Turns:
    """The clients that have something to execute."""

    __slots__ = ("_left", "_new", "late", "turn_ns")

    def __init__(self, turn_ns: int = TURN_NS) -> None:
        self.turn_ns = turn_ns
        self.late = False  # the last turn took much longer than it should
        self._new: list[Connection] = []
        self._left: deque[Connection] = deque()  # had a share already; whose turn is next comes first

    def __bool__(self) -> bool:
        return bool(self._new or self._left)

    def join(self, client: Connection) -> None:
        """A client has something to execute and is not known here."""
        self._new.append(client)

    def run(self) -> list[Connection]:
        """One turn. Returns who took part: their replies are to be sent."""
        new, self._new = self._new, []
        served = new[:]
        waiting = len(new) + len(self._left)
        end_ns = perf_counter_ns() + self.turn_ns
        for client in new:
            self._serve(client, end_ns, waiting)
            waiting -= 1
        for _ in range(waiting):  # and not those who have joined the circle just now
            client = self._left.popleft()
            self._serve(client, end_ns, waiting)
            waiting -= 1
            served.append(client)
            if perf_counter_ns() >= end_ns:
                break
        self.late = perf_counter_ns() > end_ns + self.turn_ns
        return served

    def _serve(self, client: Connection, end_ns: int, waiting: int) -> None:
        """`waiting` clients share what is left of the turn, this one among them."""
        now = perf_counter_ns()
        if client.take_turn(now + max(0, end_ns - now) // waiting):
            self._left.append(client)
        else:
            client.queued = False
