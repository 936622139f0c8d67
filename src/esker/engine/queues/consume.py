"""Leasing jobs and settling leases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby, repeat
from operator import attrgetter
from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.config import Pause
from esker.engine.ids import PARTITION_SHIFT, PLACE_MASK, TIME_SHIFT, message_id
from esker.engine.limits import SEQ_BITS, SEQ_MAX
from esker.engine.queues import clockwork, deadletters, picking, pressure
from esker.engine.queues.backoff import backoff_ms
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.queues.tokens import first_token, taker_of
from esker.engine.replies import Delivery, Done, Extended, Leased, Reply, StillWorking
from esker.engine.topic import Topic
from esker.errors import Code, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_READY, _DELAYED, _LEASED, _WITHDRAWN, _SPENT = (int(state) for state in JobState)


def lease(machine: Machine, command: commands.Lease, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    if topic is None:
        return Leased(())
    if not topic.is_queue:
        return not_a_queue(topic)
    if topic.pause & Pause.OUT:
        return Leased((), ready_count(topic))
    count = lease_room(machine, topic, command.count, now)
    deliveries: list[Delivery] = []
    while len(deliveries) < count:
        if len(topic.partitions) == 1:
            deliveries += _deliver_run(machine, topic.partitions[0], command, now, count - len(deliveries))
            if len(deliveries) == count:
                break
        delivery = deliver_next(machine, topic, command, now)
        if delivery is None:
            break
        deliveries.append(delivery)
    return Leased(deliveries, ready_count(topic))


def not_a_queue(topic: Topic) -> Refusal:
    return Refusal(
        Code.NOT_A_QUEUE, f"topic {quoted(topic.name)} is a {topic.config.type}, not a queue", {"topic": topic.name}
    )


def ready_count(topic: Topic) -> int:
    partitions = topic.partitions
    return partitions[0].counts[_READY] if len(partitions) == 1 else topic.count(_READY)


def lease_room(machine: Machine, topic: Topic, count: int, now: int) -> int:
    """Brings the topic up to now, and tells how many of `count` jobs may be leased at once."""
    for partition in topic.partitions:
        if partition.wake_ms and partition.wake_ms <= now:  # what is due by now counts by now
            clockwork.run_timers(machine, partition, now, limits.TIMERS_PER_TURN)
    count = min(count, limits.LEASE_JOBS_MAX)
    if topic.config.max_in_flight:
        count = min(count, topic.config.max_in_flight - topic.count(_LEASED))
    return count


def deliver_next(machine: Machine, topic: Topic, claim: commands.Lease, now: int) -> Delivery | None:
    """Leases the best job there is. On the way, what has expired leaves, and what failed too often is buried."""
    while (found := _next_job(topic)) is not None:
        partition, job = found
        if job.expires_ms and job.expires_ms <= now:
            clockwork.expire_one(machine, partition, job, now)
        else:
            due = deadletters.is_due(topic, job)
            if not due or not deadletters.bury(machine, partition, job, now):
                return _deliver(machine, partition, job, claim, now, due)
    return None


def _next_job(topic: Topic) -> tuple[QueuePartition, Job] | None:
    """The best ready job of all partitions. Exact: every partition's best is at hand."""
    best: tuple[int, int, int, int] | None = None
    for partition in topic.partitions:
        key = partition.first_ready()
        if key is not None and (best is None or key >> SEQ_BITS <= best[0]):
            order = delivery_order(partition, key)
            if best is None or order < best:
                best = order
    if best is None:
        return None
    partition = topic.partitions[best[3]]
    return partition, partition.jobs[best[2]]


def delivery_order(partition: QueuePartition, key: int) -> tuple[int, int, int, int]:
    """How the ready jobs of several partitions are put in one order: priority, time, seq, partition.

    The seqs of two partitions count different things, so time comes before them. Jobs without a key take turns among
    the partitions: those of one millisecond leave as they came, too.
    """
    seq = key & SEQ_MAX
    return key >> SEQ_BITS, partition.jobs[seq].created_ms, seq, partition.index


def _deliver_run(
    machine: Machine, partition: QueuePartition, command: commands.Lease, now: int, count: int
) -> list[Delivery]:
    """Leases the best jobs there are, up to `count` and up to one that needs more thought: that is `deliver_next`'s.

    Nearly all jobs are leased here and by the batch, at a fraction of the cost.
    """
    topic = partition.topic
    is_due = None if topic.config.dead_letter is None else partial(deadletters.is_due, topic)
    jobs = picking.pick(partition, count, now, is_due)
    if len(jobs) == 1:
        return [_deliver(machine, partition, jobs[0], command, now, excused=False)]
    if command.lease_ms is not None:
        return _hand_out(machine, partition, jobs, command.lease_ms, command, now) if jobs else []
    deliveries: list[Delivery] = []
    for retry_ms, alike in groupby(jobs, _retry_ms):
        deliveries += _hand_out(machine, partition, list(alike), retry_ms, command, now)
    return deliveries


_retry_ms = attrgetter("retry_ms")


def _hand_out(
    machine: Machine, partition: QueuePartition, jobs: Sequence[Job], lease_ms: int, command: commands.Lease, now: int
) -> list[Delivery]:
    """Leases jobs that were picked. They are told together, with tokens in a row from a random one on."""
    topic = partition.topic
    name, number, index = topic.name, topic.number, partition.index
    token = first_token(machine.dice, command.taker)
    deadline_ms = now + max(1, min(lease_ms, topic.config.max_lease_ms))
    attempts = [job.attempts + 1 for job in jobs]
    first_id = message_id(0, number, index, 0)
    deliveries = [
        Delivery(
            name, (job.created_ms << TIME_SHIFT) + first_id + job.seq,
            machine.payload(partition, job) if job.payload is None else job.payload,
            job.priority, next_token, deadline_ms, job.attempts + 1, job.nacks, job.requeues, job.retry_ms,
            job.expires_ms - job.created_ms if job.expires_ms else 0, job.details,
        )
        for next_token, job in enumerate(jobs, token)
    ]  # fmt: skip
    seqs = [job.seq for job in jobs]  # the very objects that the jobs hold go everywhere: 32 bytes each
    leased = events.JobsLeased(number, index, now, token, deadline_ms, command.holder, seqs, attempts)
    # A lost lease heals itself: the jobs are delivered again.
    machine.record(partition, leased, sync=topic.config.leases_durable, evolve=lambda: partition.hand_out(jobs, leased))
    return deliveries


def _deliver(
    machine: Machine, partition: QueuePartition, job: Job, command: commands.Lease, now: int, excused: bool
) -> Delivery:
    topic = partition.topic
    config = topic.config
    at_most_once = job.retry_ms == 0
    token = first_token(machine.dice, command.taker)
    lease_ms = job.retry_ms if command.lease_ms is None else command.lease_ms
    deadline_ms = 0 if at_most_once else now + max(1, min(lease_ms, config.max_lease_ms))
    leased = events.JobLeased(
        topic.number, partition.index, job.seq, now, token, deadline_ms, job.attempts + 1, command.holder, excused
    )
    delivery = Delivery(
        topic.name, message_id(job.created_ms, topic.number, partition.index, job.seq),
        machine.payload(partition, job), job.priority, token, deadline_ms, leased.attempts, job.nacks, job.requeues,
        job.retry_ms, job.expires_ms - job.created_ms if job.expires_ms else 0, job.details,
    )  # fmt: skip
    # A lost lease heals itself (the job is delivered again), but at most once must hold across a crash.
    machine.record(partition, leased, sync=at_most_once or config.leases_durable)
    if at_most_once and len(partition.spent) > limits.SPENT_JOBS_MAX:
        pressure.evict_spent(machine, partition, now, keep=limits.SPENT_JOBS_MAX, limit=limits.TIMERS_PER_TURN)
    return delivery


def ack(machine: Machine, command: commands.Ack, now: int) -> Reply:
    tokens = command.tokens
    if (problem := _tokens_problem(command.ids, tokens)) is not None:
        return problem
    missed: list[int] = []
    settled: dict[QueuePartition, dict[int, Job]] = {}
    place = -1  # topic and partition of the id before
    jobs: dict[int, Job] = {}
    of_partition: dict[int, Job] = {}
    for job_id, token in zip(command.ids, tokens or repeat(None)):  # noqa: B905 (as many, or none)
        if job_id >> PARTITION_SHIFT & PLACE_MASK != place:
            place = job_id >> PARTITION_SHIFT & PLACE_MASK
            partition = machine.partition_of(job_id)
            jobs = {} if partition is None else partition.jobs
            of_partition = {} if partition is None else settled.setdefault(partition, {})
        seq = job_id & SEQ_MAX
        job = jobs.get(seq)
        if (
            job is not None
            and job.created_ms == job_id >> TIME_SHIFT
            and (token is None or not _is_stale(job, token, now))
            and seq not in of_partition
        ):
            of_partition[seq] = job
        else:
            missed.append(job_id)
    for acked_in, acked in settled.items():
        ack_all(machine, acked_in, acked, now, fenced=tokens is not None and None not in tokens)
    return Done(sum(map(len, settled.values())), missed)


def ack_all(
    machine: Machine, partition: QueuePartition, jobs: Mapping[int, Job], now: int, *, fenced: bool = True
) -> None:
    """Of jobs by their seqs. `fenced`: whoever acks has proved to hold the leases."""
    if not jobs:
        return
    topic = partition.topic
    number, index = topic.number, partition.index
    if len(jobs) == 1:
        ((seq, job),) = jobs.items()
        machine.record(partition, events.JobAcked(number, index, seq, now, job.token if fenced else 0))
    else:
        tokens = [job.token for job in jobs.values()] if fenced else []
        machine.record(partition, events.JobsAcked(number, index, now, list(jobs), tokens))
    if topic.config.max_in_flight:
        machine.woken.add(topic.name)  # there is room for another lease


def nack(machine: Machine, command: commands.Nack, now: int) -> Reply:
    if (problem := _tokens_problem(command.ids, command.tokens)) is not None:
        return problem

    def settle(partition: QueuePartition, job: Job) -> bool:
        if job.state == _READY or job.state == _SPENT or job.retry_ms == 0:
            return False
        delay = retry_delay_ms(machine, partition, job) if command.delay_ms is None else command.delay_ms
        give_back(machine, partition, job, now, delay, events.ReturnReason.NACKED)
        return True

    return _settle(machine, command, now, settle)


def extend(machine: Machine, command: commands.Extend, now: int) -> Reply:
    deadlines: dict[int, int] = {}
    if (problem := _tokens_problem(command.ids, command.tokens)) is not None:
        return problem

    def settle(partition: QueuePartition, job: Job) -> bool:
        if job.state != _LEASED or job.due_ms <= now:
            return False
        topic = partition.topic
        deadline_ms = now + max(1, min(command.lease_ms, topic.config.max_lease_ms))
        machine.record(partition, events.LeaseExtended(topic.number, partition.index, job.seq, now, deadline_ms))
        deadlines[message_id(job.created_ms, topic.number, partition.index, job.seq)] = deadline_ms
        return True

    done = _settle(machine, command, now, settle)
    return Extended(deadlines, done.missed, done.takers)


def release(machine: Machine, command: commands.Release, now: int) -> Reply:
    """Costs what the holder holds, however many topics there are."""
    count = 0
    held_in = machine.totals.holdings.get(command.holder, ())
    for partition in sorted(held_in, key=lambda partition: (partition.topic.number, partition.index)):
        for job in partition.held_by(command.holder):
            give_back(machine, partition, job, now, 0, events.ReturnReason.RELEASED)
            count += 1
    return Done(count)


def forget_leases(machine: Machine) -> None:
    """After a recovery: leases that were not promised to survive it are over, and their jobs ready.

    That goes for queues made with a config which does not say `leases_durable`: their workers claim anew. Queues of the
    Redis front that were made on first use keep their leases, as their clients expect. No event tells of it, because
    every recovery comes to the same result; the next checkpoint writes it down.
    """
    for topic in machine.topics.values():
        if topic.lazy or topic.config.leases_durable or not topic.is_queue:
            continue
        for partition in topic.partitions:
            if partition.counts[_LEASED]:
                for job in [job for job in partition.jobs.values() if job.state == _LEASED]:
                    partition.forget_lease(job)
                machine.touched.add(partition)


def working(machine: Machine, command: commands.Working, now: int) -> Reply:
    found = machine.find(command.id)
    if found is None:
        return Refusal(Code.JOB_NOT_FOUND, "job not known in the context of this node")
    partition, job = found
    if command.token is not None and _is_stale(job, command.token, now):
        return Refusal(Code.STALE_TOKEN, "the lease of this token has ended; the job is no longer yours")
    taker = 0 if command.token is not None else _other_taker(job, command.takers, now)
    if taker:
        return Refusal(
            Code.STALE_TOKEN,
            "the job is leased to another client; if it is yours, name the lease by its token",
            {"taker": taker},
        )
    if job.expires_ms and now > job.created_ms + (job.expires_ms - job.created_ms) // 2:
        return Refusal(Code.TOO_LATE, "half of the job's TTL has elapsed; it can no longer be postponed")
    due_ms = now + job.retry_ms
    number, index = partition.topic.number, partition.index
    if job.state == _LEASED:
        machine.record(partition, events.LeaseExtended(number, index, job.seq, now, due_ms))
    elif job.state != _SPENT:
        machine.record(partition, events.JobWithdrawn(number, index, job.seq, now, due_ms if job.retry_ms else 0))
    return StillWorking(job.retry_ms)


def give_back(
    machine: Machine,
    partition: QueuePartition,
    job: Job,
    now: int,
    delay_ms: int,
    reason: events.ReturnReason,
    sync: bool = True,
) -> None:
    """Returns a job to the queue with its counters brought up to date, and wakes whoever waits."""
    nacked = reason == events.ReturnReason.NACKED
    again = not nacked and reason != events.ReturnReason.RELEASED and not _never_queued(job)
    due_ms = now + min(delay_ms, limits.DELAY_MS_MAX) if delay_ms > 0 else 0
    topic = partition.topic
    machine.record(
        partition,
        events.JobReturned(
            topic.number, partition.index, job.seq, now, due_ms, job.nacks + nacked, job.requeues + again, reason
        ),
        sync=sync,
    )
    if not due_ms or topic.config.max_in_flight:
        machine.woken.add(topic.name)


def retry_delay_ms(machine: Machine, partition: QueuePartition, job: Job) -> int:
    policy = partition.topic.config.backoff
    return backoff_ms(policy, max(1, job.attempts), machine.dice.random()) if policy.base_ms else 0


def _tokens_problem(ids: Sequence[int], tokens: Sequence[int | None] | None) -> Refusal | None:
    if tokens is not None and len(tokens) != len(ids):
        return Refusal(Code.BAD_REQUEST, f"{len(tokens)} tokens for {len(ids)} jobs; give one for each")
    return None


def _is_stale(job: Job, token: int, now: int) -> bool:
    """The token is not that of a live lease."""
    return job.state != _LEASED or job.token != token or job.due_ms <= now


def _other_taker(job: Job, takers: Sequence[int] | None, now: int) -> int:
    """Who took the live lease of a job, where it is none of `takers`; else 0."""
    if takers is None or job.state != _LEASED or job.due_ms <= now:
        return 0
    taker = taker_of(job.token)
    return 0 if taker in takers else taker


def _never_queued(job: Job) -> bool:
    return job.state == _DELAYED and job.attempts == 0 and job.nacks == 0 and job.requeues == 0


def _settle(
    machine: Machine,
    command: commands.Nack | commands.Extend,
    now: int,
    settle: Callable[[QueuePartition, Job], bool],
) -> Done:
    """Calls `settle` for each job that exists and that the caller may settle: by the token of its live lease, or, where
    none is given, by who took it."""
    count = 0
    missed: list[int] = []
    others: dict[int, None] = {}
    for job_id, token in zip(command.ids, command.tokens or repeat(None)):  # noqa: B905 (as many, or none)
        found = machine.find(job_id)
        if found is not None:
            partition, job = found
            taker = _other_taker(job, command.takers, now) if token is None else 0
            if taker:
                others[taker] = None
            elif (token is None or not _is_stale(job, token, now)) and settle(partition, job):
                count += 1
                continue
        missed.append(job_id)
    return Done(count, missed, tuple(others))
