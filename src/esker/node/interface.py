"""What a front may ask of a node: decide commands, learn when replies may leave, wait for jobs.

The order of effects that every front keeps:
1. `handle` decides a command and applies it in memory at once; its reply is true, but perhaps not durable yet.
2. After a turn of commands the front looks at `gate`. `None`: every reply may leave. Otherwise every reply decided
   until now leaves only after that gate has called back without an error, and in the order of the connection.
3. A front that knows that its turn is over says `commit`; without it a commit comes a few turns of the loop later.

Everything here is called on the node's event loop, and calls back on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from esker.engine.commands import Command, Lease, Read
from esker.engine.config import Durability, TopicConfig
from esker.engine.replies import Leased, Reply
from esker.errors import ShardStopped

if TYPE_CHECKING:
    from esker.node.eventreading import EventRange, EventsWish
    from esker.node.loading import Loading
    from esker.node.planning import Plan, PlanWish
    from esker.node.ranges import Range, RangeWish
    from esker.node.snapshots import Snapshots

Facts = Mapping[str, Mapping[str, int | float | str]]


class Gate(Protocol):
    """A batch of events on its way to disk."""

    def subscribe(self, done: Callable[[BaseException | None], None]) -> None:
        """`done` is called once: with None when the batch is durable, or with what went wrong."""


class Waiter(Protocol):
    def cancel(self) -> None:
        """Stops waiting; `deliver` is not called after this. Harmless when it was called already."""


class SettingsView(Protocol):
    """The settings of a node that fronts show to their users."""

    @property
    def data(self) -> str:
        """The data directory."""

    @property
    def memory_limit_bytes(self) -> int: ...

    @property
    def clock_jump_max_s(self) -> int:
        """How far the wall clock may be off and still be believed; 0: any."""

    @property
    def queue_durability(self) -> Durability:
        """Of a queue that is made on first use, without a config."""


class Broker(Protocol):
    @property
    def node_id(self) -> str:
        """40 hexadecimal characters, the same for the life of the data directory."""

    @property
    def settings(self) -> SettingsView: ...

    @property
    def gate(self) -> Gate | None:
        """What replies decided until now must wait for; None when all of it is as durable as promised."""

    @property
    def stopped(self) -> ShardStopped | None:
        """Why the node no longer serves; None while it does."""

    @property
    def stalled(self) -> str | None:
        """Why nothing that changes something is answered for now; None: it is. As `problem`, for anyone to read."""

    @property
    def problem(self) -> str | None:
        """What is wrong while it serves all the same, for anyone to read: no paths, no names. None when nothing is."""

    def lasts(self, leased: Leased) -> bool:
        """Whether a lease, just decided, may be told without waiting for the gate: a crash could take only itself."""

    def commit(self) -> None:
        """No more is to come just now: what was decided should go to disk. It does so soon without this, too.

        Gates may open before it returns, so it is the last thing its caller does.
        """

    @property
    def loads(self) -> Loading:
        """Bulk loads: staging, committing, and how far they are."""

    @property
    def snapshots(self) -> Snapshots:
        """Snapshots of queues: taking, reading and deleting them."""

    def handle(self, command: Command) -> Reply:
        """Decides and applies. Raises `ShardStopped` when the shard serves no more."""

    async def read(self, command: Read) -> Reply:
        """A `Read` of which parts may be in the archive: what `handle` leaves to be fetched is fetched.

        For everything else it is the same as `handle`, which needs no waiting. Raises `ArchiveError`.
        """

    def read_range(self, wish: RangeWish) -> Range:
        """A range of a log, to be read as columns. Raises `RangeRefused` and `UnknownColumn` (node/ranges.py)."""

    async def read_events(self, wish: EventsWish) -> EventRange:
        """A range of the history, to be read as columns. Raises `EventsRefused` (node/eventreading.py)."""

    async def plan(self, wish: PlanWish) -> Plan:
        """Where the records of topics are. Raises `PlanRefused` (node/planning.py)."""

    def wait_for_jobs(
        self,
        topics: Sequence[bytes],
        timeout_ms: int,
        deliver: Callable[[Leased | None], None],
        lease: Lease | None = None,
        taker: int = 0,
    ) -> Waiter:
        """Waits, first come first served on each topic, for one job of any of `topics`, or for what `lease` asks for.

        One job of any is leased for `taker` (`Lease.taker`).

        `deliver` is called once, never before this returns: with the leases (then `gate` covers them), or with None
        when `timeout_ms` (0: never) has passed. `deliver` must not call `handle`. Where the topic's claims share,
        whoever waits shares with them.
        """

    def claim(self, command: Lease, deliver: Callable[[Reply], None]) -> Waiter:
        """A `Lease` that shares evenly with all claims that come within the topic's `claim_jitter_ms` of it.

        `deliver` is called once, with what the command was answered: at once where there is no jitter, else when the
        window ends. Then `gate` covers it. `deliver` must not call `handle`.
        """

    def watch(self, topics: Sequence[bytes], wake: Callable[[], None]) -> Waiter:
        """Calls `wake`, until cancelled, after any of `topics` got records, was made, or went.

        Never before this returns, and at most once a turn of the loop; when the node is busy, watchers of topics with a
        high effective priority come first. `wake` may call `handle`.
        """

    def revision(self, topic: bytes) -> int:
        """Of a topic that somebody watches: changes, at once, with everything that `watch` tells of."""

    def watch_leases(self, topic: bytes, holder: bytes, wake: Callable[[], None]) -> Waiter:
        """Calls `wake`, until cancelled, when leases of `holder` in `topic` may have ended, or the topic changed.

        It is called by the command that ended them, so it must not call `handle`; it may be called for nothing.
        """

    def still_held(self, topic: bytes, leases: Mapping[int, int]) -> dict[int, int]:
        """Which of these leases (tokens by slot, see engine/ids.py) have not ended."""

    def config_of(self, topic: bytes) -> TopicConfig | None:
        """The config of a topic, None when there is none. A look, which changes and touches nothing."""

    def topic_of(self, message_id: int) -> bytes | None:
        """The name of the topic that an id says its job is in; None when there is no such topic. A look."""

    def given_config(self, topic: bytes) -> TopicConfig | None:
        """The config that somebody gave a topic; None when there is none, as for a queue that was made on first use."""

    def blocked_on(self, topic: bytes) -> int:
        """How many waiters wait for this topic."""

    def now_ms(self) -> int:
        """The clock that decides: milliseconds since the epoch."""

    def counts(self) -> tuple[int, int]:
        """How many topics and how many routers there are. Cheap."""

    def facts(self) -> Facts:
        """What the node knows about itself, by section: Memory, Jobs, Queues, Persistence, Loop …"""

    def reconfigure(self, key: str, value: str) -> None:
        """Changes one setting of the running node. Raises `SettingsError`, which names the key."""

    def checkpoint(self) -> None:
        """Starts a checkpoint now instead of when it is due."""

    def shutdown(self) -> None:
        """Asks the node to stop: it finishes what was accepted, syncs, and ends. Returns at once."""
