"""Everything the engine can be asked. Commands are immutable, know no protocol, and carry no time of their own.

Jobs are named by their message id (see ids.py). `tokens`, where a command takes them, are fencing tokens in the order
of `ids`: with a token the caller must hold the live lease. Where there is none (Disque's protocol had none), `takers`
say for whom the caller speaks (queues/tokens.py): a live lease that another took is not its to settle, one without a
taker is. `takers` None: the id suffices.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from esker.engine.config import Pause, RouterOptions, TopicConfig
from esker.engine.deletion import Deletion


class Details(msgspec.Struct, frozen=True, gc=False, array_like=True, omit_defaults=True):
    """What few jobs carry, kept apart so that the many do not pay for it. Immutable for the life of a job."""

    delay_ms: int = 0
    max_deliveries: int | None = None  # None: the topic's
    tag: bytes = b""
    node: bytes = b""
    meta: bytes = b""  # a JSON object as text; empty: none
    producer: bytes = b""  # idempotent producer: (producer, epoch, sequence)
    epoch: int = 0
    sequence: int = 0
    key: bytes = b""  # idempotency key
    hops: int = 0  # times routers forwarded it before it came here


NO_DETAILS = Details()


class NewJob(msgspec.Struct, frozen=True, gc=False):
    payload: bytes
    priority: int = 0
    retry_ms: int | None = None  # how long a delivery may take; None: the topic's lease_ms; 0: at most once
    ttl_ms: int | None = None  # None: the topic's; 0: never expires
    details: Details | None = None
    partition_key: bytes | None = None


class Enqueue(msgspec.Struct, frozen=True, gc=False):
    """Adds all jobs, or none. A missing topic is made with `config`, or, if that is None, with the default."""

    topic: bytes
    jobs: Sequence[NewJob]
    max_len: int = 0  # refuse when this many jobs wait already; 0: no limit
    config: TopicConfig | None = None
    create: bool = True


class EnqueueAlike(msgspec.Struct, frozen=True, gc=False):
    """Adds jobs of priority 0 that differ in their payloads only; all, or none. The way of most jobs, so the fastest.

    A missing topic is made with the default config.
    """

    topic: bytes
    payloads: Sequence[bytes]
    retry_ms: int
    ttl_ms: int


class Lease(msgspec.Struct, frozen=True, gc=False):
    """Leases up to `count` ready jobs, best first."""

    topic: bytes
    count: int = 1
    lease_ms: int | None = None  # None: the job's own retry time
    holder: bytes = b""  # whoever holds it; all its leases can be released at once
    taker: int = 0  # who takes it, where it has no name: goes into the tokens; 0: nobody in particular


class LeaseCohort(msgspec.Struct, frozen=True, gc=False):
    """Serves many claims of one topic in one pass, in rounds: each gets a job before any gets its next.

    Answered with `CohortLeased`. The `topic` of the claims is not looked at.
    """

    topic: bytes
    claims: Sequence[Lease]


class Ack(msgspec.Struct, frozen=True, gc=False):
    """A job that is done is done, whoever did it: without a token, anybody may say so."""

    ids: Sequence[int]
    tokens: Sequence[int | None] | None = None


class Nack(msgspec.Struct, frozen=True, gc=False):
    """Gives jobs back. `delay_ms` None: the topic's backoff decides."""

    ids: Sequence[int]
    tokens: Sequence[int | None] | None = None
    delay_ms: int | None = None
    takers: Sequence[int] | None = None


class Extend(msgspec.Struct, frozen=True, gc=False):
    """Sets the deadline of live leases to now + lease_ms."""

    ids: Sequence[int]
    lease_ms: int
    tokens: Sequence[int | None] | None = None
    takers: Sequence[int] | None = None


class Release(msgspec.Struct, frozen=True, gc=False):
    """Gives back all that `holder` holds, at once: its connection is gone. Not counted as a nack."""

    holder: bytes


class Working(msgspec.Struct, frozen=True, gc=False):
    """Disque's WORKING: still busy; the job comes back only after a whole retry time from now."""

    id: int
    token: int | None = None
    takers: Sequence[int] | None = None


class Requeue(msgspec.Struct, frozen=True, gc=False):
    """Disque's ENQUEUE: makes jobs ready that are not."""

    ids: Sequence[int]


class Withdraw(msgspec.Struct, frozen=True, gc=False):
    """Disque's DEQUEUE: takes ready jobs out of the queue; they come back after their retry time."""

    ids: Sequence[int]


class Delete(msgspec.Struct, frozen=True, gc=False):
    ids: Sequence[int]


class Reprioritise(msgspec.Struct, frozen=True, gc=False):
    ids: Sequence[int]
    priority: int


class Purge(msgspec.Struct, frozen=True, gc=False):
    """Removes every job of the topic, whatever its state."""

    topic: bytes


class PauseTopic(msgspec.Struct, frozen=True, gc=False):
    """Sets, or with `pause` None only reads, the pause state. Setting creates a missing queue, as Disque does."""

    topic: bytes
    pause: Pause | None


class CreateTopic(msgspec.Struct, frozen=True, gc=False):
    topic: bytes
    config: TopicConfig


class ConfigureTopic(msgspec.Struct, frozen=True, gc=False):
    topic: bytes
    config: TopicConfig


class DeleteTopic(msgspec.Struct, frozen=True, gc=False):
    topic: bytes


class DeleteAllTopics(msgspec.Struct, frozen=True, gc=False):
    pass


class ReplayDeadLetters(msgspec.Struct, frozen=True, gc=False):
    """Sends dead letters back where they came from, with their old priority and seq, and a fresh count of deliveries.

    `topic` is the dead-letter topic. `ids` None: the first `count` of it.
    """

    topic: bytes
    ids: Sequence[int] | None = None
    count: int = 1


class AckHeld(msgspec.Struct, frozen=True, gc=False):
    """Acks jobs by slot, each only if `holder` holds its live lease, and (where a token is given) that very lease.

    A slot is partition and seq (ids.py); in a topic of one partition it is the seq. `tokens` are in the order of
    `slots`; None among them asks for no token.
    """

    topic: bytes
    slots: Sequence[int]
    holder: bytes
    tokens: Sequence[int | None] | None = None


class NackHeld(msgspec.Struct, frozen=True, gc=False):
    """Gives jobs back by slot, under the rules of `AckHeld`."""

    topic: bytes
    slots: Sequence[int]
    holder: bytes
    tokens: Sequence[int | None] | None = None
    delay_ms: int = 0


class ExtendHeld(msgspec.Struct, frozen=True, gc=False):
    """Sets the deadline of held leases to now + lease_ms, under the rules of `AckHeld`."""

    topic: bytes
    slots: Sequence[int]
    holder: bytes
    lease_ms: int
    tokens: Sequence[int | None] | None = None


class NewRecord(msgspec.Struct, frozen=True, gc=False, array_like=True, omit_defaults=True):
    """A record without its seq and time: as it comes, as it is stored, and shared by all copies that routers make.

    `data` and `meta` are JSON texts that pass through unparsed; an empty `tag`, `node` or `meta` is none.
    """

    data: bytes
    tag: bytes = b""
    node: bytes = b""
    meta: bytes = b""
    hops: int = 0  # times it was forwarded


class Append(msgspec.Struct, frozen=True, gc=False):
    """Adds all records with seqs in a row, or none. On a queue each record becomes a job.

    A missing topic is made with `config`, or, if that is None, as a log of class disk.
    With `key`, a repetition within the topic's window adds nothing and is answered like the first time.
    """

    topic: bytes
    records: Sequence[NewRecord]
    key: bytes = b""
    config: TopicConfig | None = None
    create: bool = True


class Publish(msgspec.Struct, frozen=True, gc=False):
    """One chunk of a bulk load: does `work`, and remembers that it was done, both or neither.

    Chunks of a batch are numbered from 0, batches of a load rise. What the load's mark knows already is not done again.
    """

    load: bytes
    batch: int
    chunk: int
    rows: int  # of the batch, up to and with this chunk
    last: bool  # of the batch
    work: Enqueue | EnqueueAlike | Append | None  # None: nothing but the mark


class Read(msgspec.Struct, frozen=True, gc=False):
    """The records behind seq `after`, without those of `nodes`. Reads a queue's jobs too, and never leases them."""

    topic: bytes
    after: int = 0
    limit: int = 256
    max_bytes: int = 1 << 20  # of data and meta; one record always fits
    nodes: frozenset[bytes] = frozenset()
    spans: bool = False  # of a log: answered with `Records.spans`, which takes a fraction of the time


class DeleteRecords(msgspec.Struct, frozen=True, gc=False):
    """Removes, once and for good, what is below `before_seq` and has the tag (with `prefix`: a tag that starts so).

    At least one of `before_seq` and `tag` is given. On a queue it removes jobs, leased or not. Many go in steps
    (deletion.py): the reply then has a `rest`.
    """

    topic: bytes
    before_seq: int | None = None
    tag: bytes | None = None
    prefix: bool = False


class DeleteMore(msgspec.Struct, frozen=True, gc=False):
    """The next step of a delete that `Deleted.rest` came from."""

    topic: bytes
    rest: Deletion


class ArchiveRecords(msgspec.Struct, frozen=True, gc=False):
    """The records of a log (by its number) from `first` to `last` are in `file`: from now on they are read there."""

    topic: int
    first: int
    last: int
    file: str
    sha256: str = ""


class PutTopic(msgspec.Struct, frozen=True, gc=False):
    """Makes a topic, or gives it this config."""

    topic: bytes
    config: TopicConfig


class DropTopic(msgspec.Struct, frozen=True, gc=False):
    """Removes a topic, and the routers at its ends; `if_empty` refuses when it holds anything."""

    topic: bytes
    if_empty: bool = False


class TopicState(msgspec.Struct, frozen=True, gc=False):
    """`touch`: counts as a consumption, which raises the topic's automatic priority for a while."""

    topic: bytes
    touch: bool = True


class ListTopics(msgspec.Struct, frozen=True, gc=False):
    """A page of topics in order of their names, behind the name `after`."""

    prefix: bytes = b""
    after: bytes = b""
    count: int = 100
    touch: bool = False


class PutRouter(msgspec.Struct, frozen=True, gc=False):
    """Makes a router, or gives it these options; its source and dest cannot change. Missing topics are made."""

    name: bytes
    source: bytes
    dest: bytes
    options: RouterOptions
    create_dest: bool = True


class DropRouter(msgspec.Struct, frozen=True, gc=False):
    name: bytes


class RouterState(msgspec.Struct, frozen=True, gc=False):
    name: bytes


class ListRouters(msgspec.Struct, frozen=True, gc=False):
    """A page of routers in order of their names, behind the name `after`."""

    prefix: bytes = b""
    source: bytes | None = None
    dest: bytes | None = None
    after: bytes = b""
    count: int = 100


class Forward(msgspec.Struct, frozen=True, gc=False):
    """Lets routers that are behind their source catch up: a bounded step. Answered with `Count`: copies made."""


class Show(msgspec.Struct, frozen=True, gc=False):
    id: int


class Peek(msgspec.Struct, frozen=True, gc=False):
    """Reads ready jobs without leasing them: in order of delivery, or with `newest` the latest arrivals first."""

    topic: bytes
    count: int = 1
    newest: bool = False


class Length(msgspec.Struct, frozen=True, gc=False):
    topic: bytes


class Stats(msgspec.Struct, frozen=True, gc=False):
    topic: bytes


class ScanTopics(msgspec.Struct, frozen=True, gc=False):
    """A page of topics after `cursor` (0 starts; a cursor of 0 in the reply ends)."""

    cursor: int = 0
    count: int = 100


class ScanJobs(msgspec.Struct, frozen=True, gc=False):
    """A page of jobs after `cursor`, in no promised order. A job that lives through the whole scan is seen."""

    cursor: int = 0
    count: int = 100
    topic: bytes | None = None


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed: expire leases and jobs, ready the delayed, forget the idle. A bounded step."""


Command = (
    Enqueue | EnqueueAlike | Lease | LeaseCohort | Ack | Nack | Extend | Release | Working | Requeue | Withdraw
    | Delete | Reprioritise | Purge | PauseTopic | CreateTopic | ConfigureTopic | DeleteTopic | DeleteAllTopics
    | ReplayDeadLetters | AckHeld | NackHeld | ExtendHeld | Append | Publish | Read | DeleteRecords | DeleteMore
    | ArchiveRecords | PutTopic | DropTopic | TopicState | ListTopics | PutRouter | DropRouter | RouterState
    | ListRouters | Forward | Show | Peek | Length | Stats | ScanTopics | ScanJobs | Tick
)  # fmt: skip
