"""Making copies: every record of a router's source, in order, appended to its destination under that one's own rules.

Forwarding is off the path of whoever writes to the source. The shard lets routers catch up in bounded steps
(`Forward`); who reads a destination, or asks a router how far it is, first gets everything that was acknowledged on the
source (`catch_up`).

A copy is *derived* where the journal can make it again: from a log into a log, when the source's class is not weaker
than the destination's. Then `RecordsForwarded` is all that is journalled: which records, and which seq the first copy
got. Folding it finds the records in the source and puts the copies where they were, so a crash neither doubles a copy
nor gives its seq to another record; that holds for every router, whatever its guarantee. Where the source may forget
what the destination has promised (a weaker class, a queue whose jobs get done), the copies are journalled like any
other record, in one batch with the cursor.

The cursor moves only over what is copied, passed over on purpose, or told as a gap. A destination that is full and
refuses leaves it where it is: the router is stalled and tries again later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.config import Discard, Durability, Pause
from esker.engine.events import RecordBody
from esker.engine.logs import append, retention, sources
from esker.engine.logs.block import body_size
from esker.engine.logs.partition import LogPartition
from esker.engine.logs.routers import Router
from esker.engine.logs.sources import SOURCE_TRIM, Taken, adapt, head_of, take
from esker.engine.queues import pressure, records
from esker.engine.queues import retention as queue_retention
from esker.engine.replies import Count, Reply
from esker.engine.topic import Topic

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_STRENGTH = {Durability.EPHEMERAL: 0, Durability.MEMORY: 1, Durability.DISK: 2, Durability.FSYNC: 3}

# What is taken from the same place is the same, so a fan-out takes it once: by source, its floor, cursor and limit.
_Shared = dict[tuple[int, int, int, int], Taken]


def forward(machine: Machine, command: commands.Forward, now: int) -> Reply:
    """One step: routers in turn, each a piece, until about `FORWARD_COPIES_PER_STEP` records were looked at."""
    routers, topics = machine.routers, machine.topics
    behind = routers.behind
    for router in routers.stalled.values():
        if router.retry_ms <= now:
            behind[router.number] = router
    left = limits.FORWARD_COPIES_PER_STEP
    made = 0
    shared: _Shared = {}
    while behind and left > 0:
        number = next(iter(behind))
        router = behind.pop(number)
        head = head_of(topics[router.source])
        if router.cursor >= head or router.retry_ms > now:
            continue
        looked = min(left, head - router.cursor)
        before = router.forwarded
        if _advance(machine, router, looked, now, shared) and router.cursor < head:
            behind[number] = router  # again, after the others
        made += router.forwarded - before
        left -= looked
    return Count(made)


def catch_up(machine: Machine, topic: Topic, now: int) -> None:
    """Brings a destination up to date with its source, and that one with its own, however long the chain."""
    routers = machine.routers
    if topic.number in routers.by_dest and (routers.behind or routers.stalled):
        _run(machine, _feeders(machine, topic), now)


def catch_up_router(machine: Machine, router: Router, now: int) -> None:
    """Everything that was acknowledged on its source, or on the source of that, has been forwarded by it."""
    routers = machine.routers
    if routers.behind or routers.stalled:
        _run(machine, [*_feeders(machine, machine.topics[router.source]), router], now)


def before_loss(machine: Machine, topic: Topic, now: int, below: int = limits.SEQ_MAX) -> None:
    """The topic is about to let go of records below a seq: routers that have not come so far take them first.

    That may fill another topic, which then lets go of records, and so on; past some depth the gap is told instead.
    """
    routers = machine.routers
    if routers.depth >= limits.ROUTER_DEPTH_MAX:
        return
    routers.depth += 1
    for router in list(routers.by_source.get(topic.number, {}).values()):
        if router.cursor + 1 < below:
            _complete(machine, router, now)
    routers.depth -= 1


def forward_eager(machine: Machine, now: int) -> None:
    """Jobs of queues are forwarded at once: by the next command they may be done and gone."""
    eager = machine.routers.eager
    while eager:
        _, router = eager.popitem()
        if router.retry_ms <= now:
            _complete(machine, router, now)


def _feeders(machine: Machine, topic: Topic) -> list[Router]:
    """The routers that lead to a topic, the farthest first. A topic has one source, so they form a line, or a ring."""
    line: list[list[Router]] = []
    seen: set[int] = set()
    number = topic.number
    while number not in seen and (feeders := machine.routers.by_dest.get(number)):
        seen.add(number)
        line.append(list(feeders.values()))
        number = line[-1][0].source
    return [router for feeders_of_one in reversed(line) for router in feeders_of_one]


def _run(machine: Machine, line: list[Router], now: int) -> None:
    """Where routers form a ring, once is not enough; hops bound how often records go round."""
    moved = True
    while moved:
        moved = False
        for router in line:
            moved = _complete(machine, router, now) or moved


def _complete(machine: Machine, router: Router, now: int) -> bool:
    """Forwards all there is, unless the destination is full. Whether that was anything."""
    moved = False
    while _is_behind(machine, router):
        if not _advance(machine, router, limits.FORWARD_COPIES_PER_STEP, now, {}):
            return moved
        moved = True
    machine.routers.behind.pop(router.number, None)
    return moved


def _is_behind(machine: Machine, router: Router) -> bool:
    return router.cursor < head_of(machine.topics[router.source])


# -- one piece


def _advance(machine: Machine, router: Router, limit: int, now: int, shared: _Shared) -> bool:
    """Forwards a piece. False: the destination takes nothing now, and the router is stalled."""
    source, dest = machine.topics[router.source], machine.topics[router.dest]
    # A ring may trim its own source between two routers.
    place = source.number, 0 if source.log is None else source.log.cap_floor, router.cursor, limit
    taken = shared.get(place)
    if taken is None:
        taken = shared[place] = take(machine, source, router.cursor, limit, now)
    if not router.plain:
        taken = adapt(router, source, taken)
    if not taken.bodies:
        _move(machine, router, taken, now)
        if taken.missed and dest.log is not None:
            _tell_gap(machine, dest, dest.log, taken.missed, now)
    elif room := _room(machine, dest, taken.bodies, now):
        _put(machine, router, source, dest, taken.head(room), now)
    else:
        machine.routers.stall(router, now)
        return False
    if router.retry_ms:
        machine.routers.moved_on(router)
    return True


def _room(machine: Machine, dest: Topic, bodies: list[RecordBody], now: int) -> int:
    """How many of the copies the destination takes."""
    if dest.pause & Pause.IN or pressure.room_problem(machine, now) is not None:
        return 0
    config, log = dest.config, dest.log
    if config.discard != Discard.REJECT or not (config.cap_records or config.cap_bytes):
        return len(bodies)
    if log is not None:
        retention.expire(machine, log, now)
        count, size = log.count, log.bytes
    else:
        (partition,) = dest.partitions
        queue_retention.catch_up(machine, partition, now)
        count, size = partition.records, partition.bytes
    room = len(bodies) if not config.cap_records else min(len(bodies), max(0, config.cap_records - count))
    if config.cap_bytes:
        for place, body in enumerate(bodies[:room]):
            size += len(body.data) if log is None else body_size(body)
            if size > config.cap_bytes:
                return place
    return room


def _put(machine: Machine, router: Router, source: Topic, dest: Topic, taken: Taken, now: int) -> None:
    """Makes the copies. The cursor moves before caps are enforced: that may come round to this very router."""
    log = dest.log
    if log is None:
        (partition,) = dest.partitions  # routing.py refuses others
        _move(machine, router, taken, now, partition.next_seq)
        records.append_bodies(machine, partition, taken.bodies, now)
        return
    machine.reserve(log, len(taken.bodies))
    if is_derived(source, dest, taken.runs[0]):
        _derive(machine, router, log, taken, now)
    else:
        first = log.next_seq
        machine.record(log, events.RecordsAppended(dest.number, 0, first, now, taken.bodies))
        _move(machine, router, taken, now, first)
    append.has_grown(machine, log, now)


def is_derived(source: Topic, dest: Topic, first: int) -> bool:
    """Whether folding the journal can make copies of records from `first` on again.

    Of an ephemeral destination it must not, and of records that a source had while it was ephemeral it could not.
    """
    if source.log is None or dest.log is None or not dest.journaled or first < source.log.unjournaled_below:
        return False
    mine, its = source.config.durability, dest.config.durability
    return mine is its or _STRENGTH[mine] >= _STRENGTH[its]


def _tell_gap(machine: Machine, dest: Topic, log: LogPartition, missed: int, now: int) -> None:
    machine.reserve(log, missed)
    first = log.next_seq
    machine.record(log, events.SeqsLost(dest.number, 0, now, first, first + missed - 1, SOURCE_TRIM))
    append.has_grown(machine, log, now)


def _move(machine: Machine, router: Router, taken: Taken, now: int, dest_seq: int = 0) -> None:
    """Moves the cursor. Promises nothing to anyone, so it asks for no sync. The copies, if any, go to `dest_seq`."""
    count = router.forwarded + len(taken.bodies)
    event = events.RecordsForwarded(router.number, now, taken.upto, dest_seq, taken.runs, False, count)
    machine.record(None, event, sync=False)


def _derive(machine: Machine, router: Router, log: LogPartition, taken: Taken, now: int) -> None:
    """Moves the cursor and makes the copies, in one event.

    It is synced as a write to the destination is: a crash must not remove a record that was read, nor may another
    record get its seq.
    """
    count = router.forwarded + len(taken.bodies)
    event = events.RecordsForwarded(router.number, now, taken.upto, log.next_seq, taken.runs, True, count)

    def evolve() -> None:
        _come_to(machine, router, event)
        log.derived(event.dest_seq, now, taken.bodies, taken.weight)

    machine.record(log, event, evolve=evolve)


def _come_to(machine: Machine, router: Router, event: events.RecordsForwarded) -> None:
    router.cursor = event.upto
    router.forwarded = event.forwarded
    machine.routers.dirty[router.number] = router


def forwarded(machine: Machine, event: events.RecordsForwarded) -> None:
    """Folds: the cursor moves, and derived copies are made again from the source."""
    router = machine.routers.numbers.get(event.router)
    if router is None or event.upto <= router.cursor:
        return
    _come_to(machine, router, event)
    source, dest = machine.topics.get(router.source), machine.topics.get(router.dest)
    if not event.derived or source is None or source.log is None or dest is None or dest.log is None:
        return
    if event.dest_seq + sum(event.runs[1::2]) > dest.log.head_seq + 1:  # else the copies are known
        copies = sources.again(router, source, source.log, event.runs)
        dest.log.derived(event.dest_seq, event.ts, copies)
        machine.touched.add(dest.log)
