"""One partition of a queue: its jobs, and the indexes that find the next one.

`jobs` is the truth; the ready heap, the deadlines and the counts are derived from it and from nothing else. Every
change is an event, and `evolve.py` is the only way to make one. An event states outcomes, so folding it twice, or onto
a job that is already further on, or onto one that is gone, is harmless: recovery from a checkpoint that was taken while
the shard went on needs exactly that.

What a checkpoint must write is known here as well: all jobs from `stored_below` on, and those below it that `dirty`
names. A job that comes and goes between two checkpoints leaves no trace.

The same jobs are also records, read in the order of their seqs. Two floors tell readers what was lost without anyone
asking for it: live jobs below `cap_floor` went because the topic was full, below `ttl_floor` by age. They only rise.
Jobs of the Redis front bring TTLs of their own, so one may expire while an older one lives on: then the floor lies
above a living job. A reader is told a gap that is wider than the loss, and still gets every job that lives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappush
from typing import TYPE_CHECKING

from esker.engine import events
from esker.engine.dedup import Dedup, dedup_keys
from esker.engine.limits import SEQ_BITS
from esker.engine.logs.tags import TagIndex
from esker.engine.queues.deadlines import Deadlines
from esker.engine.queues.holders import Holders
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.ready import SIGN, ReadyHeap, ready_key
from esker.engine.queues.sums import Counters, Totals

if TYPE_CHECKING:
    from esker.engine.queues.snapshot import PartitionView
    from esker.engine.topic import Topic

_READY, _DELAYED, _LEASED, _WITHDRAWN, _SPENT = (int(state) for state in JobState)
_TIMER_SHIFT = 0  # leases and delays end to the millisecond
_EXPIRY_SHIFT = 10  # expired jobs leave within about a second, and are never delivered meanwhile
_WALK = 1024  # seqs tried one by one for the first living job, before the dict is asked: about 50 us


class QueuePartition:
    __slots__ = (
        "_retry_ms", "active_ms", "bytes", "cap_floor", "ceiling", "counters", "counts", "dedup", "dirty", "expiry",
        "first", "head_seq", "holders", "hot_bytes", "index", "jobs", "late", "next_seq", "purged_below", "ready",
        "restored", "sign", "spent", "stored_below", "tags", "timers", "topic", "totals", "ttl_floor", "views",
        "wake_ms", "wakes",
    )  # fmt: skip

    def __init__(self, topic: Topic, index: int, totals: Totals, wakes: list[tuple[int, int, int]]) -> None:
        self.topic = topic
        self.index = index
        self.totals = totals
        self.wakes = wakes  # the shard's heap of (when, topic, partition)
        self.wake_ms = 0  # the earliest entry there that is ours; 0: none
        self.sign = SIGN[topic.config.mode]
        self.next_seq = 1
        self._retry_ms = 0  # of the job that came last: jobs with the same share the object, which saves 32 bytes each
        self.head_seq = 0  # the last one given out, as far as anyone knows: a crash may have taken what lies between
        self.ceiling = 1  # seqs below are promised on disk (classes below fsync only)
        self.first = 1  # no job that counts as a record has a lower seq
        self.cap_floor = 1
        self.ttl_floor = 1
        self.counters = Counters()
        self.active_ms = topic.created_ms
        self.dedup = Dedup(totals)
        self.dirty: set[int] = set()
        self.stored_below = 1  # jobs from here on were never written to the store
        self.restored: set[int] = set()  # jobs that came back under an old seq since the last checkpoint
        self.purged_below = 0  # a range to remove from the store at the next checkpoint
        self.views: tuple[PartitionView, ...] = ()  # who must see a job before it changes (snapshot.py)
        self._clear()

    def _clear(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.counts = [0] * len(JobState)
        self.bytes = 0
        self.hot_bytes = 0
        self.ready = ReadyHeap(self._ready_key)
        self.timers = Deadlines(_TIMER_SHIFT, self._dues_of, self._none_of)
        self.expiry = Deadlines(_EXPIRY_SHIFT, self._expiries_of, self._none_of)
        self.holders = Holders(self, self.totals.holdings)
        self.spent: deque[int] = deque()
        self.late: set[int] = set()  # jobs that came behind younger ones, so that `jobs` is out of order
        self.tags = TagIndex(self._living, self.totals)

    # -- the truth that the indexes ask for

    def _ready_key(self, seq: int) -> int | None:
        job = self.jobs.get(seq)
        if job is None or job.state != _READY:
            return None
        return ready_key(self.sign, job.priority, seq)

    def _dues_of(self, seqs: Iterable[int]) -> list[int]:
        find = self.jobs.get
        return [0 if (job := find(seq)) is None else job.due_ms for seq in seqs]

    def _expiries_of(self, seqs: Iterable[int]) -> list[int]:
        find = self.jobs.get
        return [0 if (job := find(seq)) is None else job.expires_ms for seq in seqs]

    def _none_of(self, seqs: Iterable[int]) -> bool:
        return self.jobs.keys().isdisjoint(seqs)

    def _living(self, seqs: Iterable[int]) -> list[int]:
        return sorted({seq for seq in seqs if seq in self.jobs})  # one that went and came back is named twice

    # -- reading

    def first_ready(self) -> int | None:
        """The key of the job to deliver next."""
        return self.ready.first()

    def held_by(self, holder: bytes) -> list[Job]:
        jobs = (self.jobs.get(seq) for seq in sorted(self.holders.held.get(holder, ())))
        return [job for job in jobs if job is not None and job.state == _LEASED]

    @property
    def records(self) -> int:
        """The jobs that readers see: all but those that were delivered at most once, and were."""
        return len(self.jobs) - self.counts[_SPENT]

    @property
    def evict_floor(self) -> int:
        return max(self.cap_floor, self.ttl_floor)

    def earliest_seq(self) -> int:
        """Of the first job that readers see; `head_seq` + 1 when there is none.

        `first` follows the front of the queue, so that most calls find it where they look. A long gap behind it is
        crossed by asking `jobs`, which is in order but for the late ones.
        """
        jobs = self.jobs
        if not self.records:
            return self.head_seq + 1
        end = min(self.next_seq, self.first + _WALK)
        for seq in range(self.first, end):
            job = jobs.get(seq)
            if job is not None and job.state != _SPENT:
                self.first = seq
                return seq
        found = end
        if end < self.next_seq:
            found = next((seq for seq, job in jobs.items() if job.state != _SPENT), self.next_seq)
            found = min([found, *(seq for seq in self.late if jobs[seq].state != _SPENT)])
        self.first = found
        return found

    # -- changing

    def enqueued(self, event: events.Enqueued) -> None:
        self.enqueued_all((event,))

    def enqueued_all(self, batch: Sequence[events.Enqueued]) -> None:
        """Many at once: a job costs about a microsecond here, and every call saved counts."""
        if batch[0].seq < self.next_seq:
            self._make_way([event.seq for event in batch])
        jobs, sign, retry_ms = self.jobs, self.sign, self._retry_ms
        keys: list[int] = []
        special: list[Job] = []
        expiring: list[int] = []  # a run of jobs that expire together
        expires_ms = size = 0
        for event in batch:
            seq, payload, priority = event.seq, event.payload, event.priority
            length = len(payload)
            size += length
            if event.retry_ms != retry_ms:
                retry_ms = event.retry_ms
            jobs[seq] = Job(
                seq, event.ts, priority, retry_ms, event.expires_ms, _READY, 0, 0, 0, 0, 0, length, None, payload
            )  # fmt: skip
            if event.expires_ms != expires_ms:
                if expires_ms:
                    self.wake(self.expiry.add_all(expires_ms, expiring))
                expires_ms, expiring = event.expires_ms, []
            expiring.append(seq)
            if event.due_ms or event.details is not None:
                special.append(self._detailed(jobs[seq], event))
            if not event.due_ms:
                keys.append((priority * sign << SEQ_BITS) + seq)
        self._retry_ms = retry_ms
        if expires_ms:
            self.wake(self.expiry.add_all(expires_ms, expiring))
        self._insert(keys, special, batch[-1].seq, size, size, False)
        self.head_seq = self.next_seq - 1
        self.counters.jobs_in += len(batch)
        self.active_ms = batch[-1].ts

    def enqueued_alike(self, event: events.JobsEnqueued) -> None:
        """What `enqueued_all` does, for jobs that share all but their payloads."""
        payloads = event.payloads
        first, ts, retry_ms, expires_ms = event.seq, event.ts, event.retry_ms, event.expires_ms
        seqs = list(range(first, first + len(payloads)))  # the very objects go everywhere: 32 bytes each
        if first < self.next_seq:
            self._make_way(seqs)
        jobs = [
            Job(seq, ts, 0, retry_ms, expires_ms, _READY, 0, 0, 0, 0, 0, len(payload), None, payload)
            for seq, payload in zip(seqs, payloads, strict=True)
        ]
        self.jobs.update(zip(seqs, jobs, strict=True))
        if expires_ms:
            self.wake(self.expiry.add_all(expires_ms, seqs))
        size = sum(map(len, payloads))
        self._insert(seqs, (), seqs[-1], size, size, True)  # the key of priority 0 is the seq
        self.head_seq = self.next_seq - 1
        self.counters.jobs_in += len(payloads)
        self.active_ms = ts

    def _make_way(self, seqs: Sequence[int]) -> None:
        """Jobs are folded onto a checkpoint that may know them already: they start anew, the rest will follow."""
        for seq in seqs:
            self._remove(seq)
            self._come_late(seq)

    def _detailed(self, job: Job, event: events.Enqueued) -> Job:
        """Gives a new job what few jobs have: a delay, details, an idempotency key."""
        details = job.details = event.details
        if event.due_ms:
            job.state, job.due_ms = _DELAYED, event.due_ms
        if details is not None and (details.key or details.producer):
            for key in dedup_keys(details):
                self.dedup.remember(key, event.ts, event.seq)
        return job

    def replayed(self, event: events.JobReplayed) -> None:
        self._remove(event.seq)  # see `_make_way`
        for view in self.views:
            view.pass_over(event.seq)
        if event.seq < self.next_seq:
            self._come_late(event.seq)
        self._insert_again([Job(
            event.seq, event.created_ms, event.priority, event.retry_ms, event.expires_ms, _READY, 0, 0, 0, 0, 0,
            len(event.payload), event.details, event.payload,
        )])  # fmt: skip
        self.restored.add(event.seq)
        self.active_ms = event.ts

    def leased(self, event: events.JobLeased) -> None:
        job = self.jobs.get(event.seq)
        if job is None:
            return
        if self.views:
            self._keep(job)
        if job.state == _READY:
            self.ready.drop(ready_key(self.sign, job.priority, job.seq), self.counts[_READY] - 1)
        job.token = event.token
        job.attempts = event.attempts
        self.counters.jobs_out += 1
        self.active_ms = event.ts
        if job.retry_ms == 0:
            self._move(job, _SPENT, 0)
            self._spend(job.seq)
        else:
            self._move(job, _LEASED, event.deadline_ms)
            if event.holder:
                self.holders.let_go((job.seq,))  # by whoever a checkpoint that was ahead says
                self.holders.take((job.seq,), event.holder)

    def leased_together(self, event: events.JobsLeased) -> None:
        find = self.jobs.get
        jobs = [job for seq in event.seqs if (job := find(seq)) is not None and job.state == _READY and job.retry_ms]
        if len(jobs) < len(event.seqs):  # a checkpoint was ahead, or nobody noticed yet that one was due
            for each in events.leased_apart(event):
                self.leased(each)
            return
        for job in jobs:
            self.ready.drop(ready_key(self.sign, job.priority, job.seq), self.counts[_READY])
        self.hand_out(jobs, event)

    def hand_out(self, jobs: Sequence[Job], event: events.JobsLeased) -> None:
        """What the event says of its jobs, which are all here, ready, picked, and not at most once."""
        seqs, deadline_ms, ready = event.seqs, event.deadline_ms, self.counts[_READY] - len(jobs)
        if self.views:
            for job in jobs:
                self._keep(job)
        token = event.token
        for job, attempts in zip(jobs, event.attempts, strict=True):
            job.token = token
            job.attempts = attempts
            job.state = _LEASED
            job.due_ms = deadline_ms
            token += 1
        self.wake(self.timers.add_all(deadline_ms, seqs))
        if min(seqs) < self.stored_below:
            self.dirty.update([seq for seq in seqs if seq < self.stored_below])
        self.counts[_READY] = ready
        self.counts[_LEASED] += len(jobs)
        self.ready.tidy(ready)
        self.counters.jobs_out += len(jobs)
        self.active_ms = event.ts
        if event.holder:
            self.holders.take(seqs, event.holder)

    def acked(self, event: events.JobAcked) -> None:
        if self._remove(event.seq):
            self.counters.acked += 1
            self.active_ms = event.ts

    def acked_together(self, event: events.JobsAcked) -> None:
        if count := self._remove_all(event.seqs):
            self.counters.acked += count
            self.active_ms = event.ts

    def returned(self, event: events.JobReturned) -> None:
        job = self.jobs.get(event.seq)
        if job is None:
            return
        if self.views:
            self._keep(job)
        job.nacks = event.nacks
        job.requeues = event.requeues
        job.token = 0
        if event.reason == events.ReturnReason.NACKED:
            self.counters.nacked += 1
        elif event.reason == events.ReturnReason.LEASE_EXPIRED:
            self.counters.lease_timeouts += 1
        self._move(job, _DELAYED if event.due_ms else _READY, event.due_ms)

    def extended(self, event: events.LeaseExtended) -> None:
        job = self.jobs.get(event.seq)
        if job is not None:
            if self.views:
                self._keep(job)
            self._move(job, _LEASED, event.deadline_ms)

    def withdrawn(self, event: events.JobWithdrawn) -> None:
        job = self.jobs.get(event.seq)
        if job is not None:
            if self.views:
                self._keep(job)
            job.token = 0
            if job.state == _READY:
                self.ready.drop(ready_key(self.sign, job.priority, job.seq), self.counts[_READY] - 1)
            self._move(job, _WITHDRAWN, event.due_ms)

    def reprioritised(self, event: events.JobReprioritised) -> None:
        job = self.jobs.get(event.seq)
        if job is not None and job.priority != event.priority:
            if self.views:
                self._keep(job)
            job.priority = event.priority
            self._soil(job.seq)
            if job.state == _READY:
                self.ready.push_all((ready_key(self.sign, job.priority, job.seq),), self.counts[_READY])

    def removed(self, event: events.JobRemoved) -> None:
        if self._remove(event.seq):
            if event.reason == events.RemoveReason.EXPIRED:
                self.counters.expired += 1
            elif event.reason == events.RemoveReason.DEAD_LETTERED:
                self.counters.dead_lettered += 1

    def purged(self, event: events.Purged) -> dict[int, Job]:
        """Returns what was here and nobody looks at, so that the caller can let go of it in small steps."""
        gone, holders = self.jobs, self.holders
        looked_at = self.let_go_of_views(event.below)
        self.forget_totals()
        self._clear()
        self.dirty = set()
        staying = sorted(seq for seq in gone if seq >= event.below) if event.below < self.next_seq else ()
        if staying:
            self._insert_again([gone.pop(seq) for seq in staying])
        for seq in filter(holders.__contains__, staying):
            self.holders.take((seq,), holders[seq])
        self.purged_below = max(self.purged_below, event.below)
        self.active_ms = event.ts
        return {} if looked_at else gone

    def reserved(self, event: events.SeqReserved) -> None:
        self.ceiling = event.ceiling

    def key_remembered(self, event: events.KeyRemembered) -> None:
        self.dedup.remember(event.key, event.ts, event.seq, event.count)

    def trimmed(self, event: events.QueueTrimmed) -> None:
        self.cap_floor = max(self.cap_floor, event.cap_floor)
        self.ttl_floor = max(self.ttl_floor, event.ttl_floor)

    def forget_lease(self, job: Job) -> None:
        """A restart ended the lease. Nothing else of the job has changed, and no event tells of it."""
        job.token = 0
        self._move(job, _READY, 0)

    def promote(self, job: Job) -> None:
        """A delay is over. Being due is a fact of time, not an event, so nothing becomes dirty."""
        if self.views:
            self._keep(job)
        self._move(job, _READY, 0, save=False)

    def set_mode(self) -> None:
        """The topic's mode has changed, and with it every ready key."""
        sign = SIGN[self.topic.config.mode]
        if sign != self.sign:
            self.sign = sign
            self.ready.load([
                ready_key(sign, job.priority, job.seq) for job in self.jobs.values() if job.state == _READY
            ])  # fmt: skip

    def load(self, jobs: list[Job]) -> None:
        """Fills an empty partition from a checkpoint, in order of seqs; the payloads stay in the store."""
        self.first = jobs[0].seq if jobs else self.next_seq
        counts, timers, expiry = self.counts, self.timers, self.expiry
        ready: list[int] = []
        sign = self.sign
        for job in jobs:
            seq = job.seq
            self.jobs[seq] = job
            counts[job.state] += 1
            self.bytes += job.size
            if job.state == _READY:
                ready.append(ready_key(sign, job.priority, seq))
            elif job.state == _SPENT:
                self._spend(seq)
            if job.payload is not None:
                self.holders.take((seq,), job.payload)  # see `decode_jobs`
                job.payload = None
            if job.details is not None and job.details.tag:
                self.tags.add(job.details.tag, seq)
            if job.due_ms:
                timers.add(job.due_ms, seq)
            if job.expires_ms:
                expiry.add(job.expires_ms, seq)
        self.ready.load(ready)
        self.totals.jobs += len(jobs)
        self.sleep()

    def cool(self, job: Job) -> None:
        """Drops the payload from memory: the store has it, and will keep it.

        It will not where a purge is yet to be saved: the next checkpoint removes everything below, and then writes what
        came back since, from memory.
        """
        if job.seq < self.purged_below:
            return
        job.payload = None
        self.hot_bytes -= job.size
        self.totals.hot_bytes -= job.size

    def forget_totals(self) -> None:
        """The partition is about to go, or to be emptied."""
        self.totals.jobs -= len(self.jobs)
        self.totals.hot_bytes -= self.hot_bytes
        self.totals.spent.pop(self, None)
        self.tags.forget_totals()
        self.holders.leave()
        self.holders = Holders(self, self.totals.holdings)

    def _spend(self, seq: int) -> None:
        """An at-most-once job was delivered: it may go when memory is short."""
        self.spent.append(seq)
        self.totals.spent[self] = None

    def _insert_again(self, jobs: Sequence[Job]) -> None:
        """Jobs in any state that had their seqs before, in the order of these."""
        size, hot_size = sum(job.size for job in jobs), sum(job.size for job in jobs if job.payload is not None)
        for job in jobs:
            self._soil(job.seq)
            if job.expires_ms:
                self.wake(self.expiry.add(job.expires_ms, job.seq))
        keys = [ready_key(self.sign, job.priority, job.seq) for job in jobs if job.state == _READY]
        self.jobs.update({job.seq: job for job in jobs})
        self._insert(keys, jobs, jobs[-1].seq, size, hot_size, False)

    def _insert(
        self, keys: Sequence[int], special: Sequence[Job], last_seq: int, size: int, hot_size: int, rising: bool
    ) -> None:
        """Adds a batch that the caller has put into `jobs` and `expiry` to all other indexes. Only `load` does so, too.

        `keys` are of those that are ready; `rising`: in their order. Jobs with details, or not ready, are `special`.
        """
        if last_seq >= self.next_seq:
            self.next_seq = last_seq + 1
        counts, totals = self.counts, self.totals
        counts[_READY] += len(keys)
        (self.ready.push_run if rising else self.ready.push_all)(keys, counts[_READY])
        totals.jobs += len(keys)
        for job in special:
            if job.state != _READY:
                counts[job.state] += 1
                totals.jobs += 1
            if job.state == _SPENT:
                self._spend(job.seq)
            if job.due_ms:
                self.wake(self.timers.add(job.due_ms, job.seq))
            if job.details is not None and job.details.tag:
                self.tags.add(job.details.tag, job.seq)
        self.bytes += size
        self.hot_bytes += hot_size
        totals.hot_bytes += hot_size
        totals.unsaved_bytes += hot_size

    def _remove(self, seq: int) -> bool:
        return self._remove_all((seq,)) == 1

    def _remove_all(self, seqs: Sequence[int]) -> int:
        """Returns how many of them there were. Jobs that go together are much alike: a run of such is counted."""
        size = hot_size = unsaved_size = 0
        pop, stored_below = self.jobs.pop, self.stored_below
        gone = [job for seq in seqs if (job := pop(seq, None)) is not None]
        if not gone:
            return 0
        state, due_ms, expires_ms, alike = gone[0].state, gone[0].due_ms, gone[0].expires_ms, 0
        for job in gone:
            if job.state != state or job.due_ms != due_ms or job.expires_ms != expires_ms:
                self._left(state, due_ms, expires_ms, alike)
                state, due_ms, expires_ms, alike = job.state, job.due_ms, job.expires_ms, 0
            alike += 1
            length = job.size
            size += length
            if job.payload is not None:
                hot_size += length
            if job.seq < stored_below:
                self.dirty.add(job.seq)
            else:
                unsaved_size += length
            if job.details is not None and job.details.tag:
                self.tags.let_go(1)
        self._left(state, due_ms, expires_ms, alike)
        if self.views:
            for job in gone:
                self._keep(job)
        if self.holders:
            self.holders.let_go(seqs)
        if self.late:
            self.late.difference_update(seqs)
        self.bytes -= size
        self.hot_bytes -= hot_size
        totals = self.totals
        totals.jobs -= len(gone)
        totals.hot_bytes -= hot_size
        totals.unsaved_bytes -= unsaved_size
        return len(gone)

    def _left(self, state: int, due_ms: int, expires_ms: int, count: int) -> None:
        """So many jobs, all of which were in that state and had these deadlines, are gone."""
        self.counts[state] -= count
        if state == _READY:
            self.ready.tidy(self.counts[_READY])
        if due_ms:
            self.timers.cancel(due_ms, count)
        if expires_ms:
            self.expiry.cancel(expires_ms, count)

    def _keep(self, job: Job) -> None:
        for view in self.views:
            view.keep(job)

    def let_go_of_views(self, below: int) -> bool:
        """The jobs below a seq are about to be given away. Returns whether someone still looks at them."""
        if self.views and below < self.next_seq:
            for job in [job for seq, job in self.jobs.items() if seq >= below]:
                self._keep(job)
        views, self.views = set(self.views), ()
        for view in tuple(views):
            view.let_go(self.holders, views)
        return len(views) > 0

    def _move(self, job: Job, state: int, due_ms: int, *, save: bool = True) -> None:
        old, old_due, seq = job.state, job.due_ms, job.seq
        job.state = state
        job.due_ms = due_ms
        if old != state:
            self.counts[old] -= 1
            self.counts[state] += 1
            if state == _READY:
                self.ready.push_all((ready_key(self.sign, job.priority, seq),), self.counts[_READY])
            if self.holders:
                self.holders.let_go((seq,))
        if old_due != due_ms:
            if due_ms:
                self.wake(self.timers.add(due_ms, seq))
            if old_due:
                self.timers.cancel(old_due)
        if save and seq < self.stored_below:
            self.dirty.add(seq)

    def _soil(self, seq: int) -> None:
        """The stored form of a job is out of date. Jobs that were never stored need no mark."""
        if seq < self.stored_below:
            self.dirty.add(seq)

    def _come_late(self, seq: int) -> None:
        """A job is about to come in behind younger ones."""
        self.late.add(seq)
        self.first = min(self.first, seq)

    def sleep(self) -> None:
        """After the timers ran: wake again for what is due next."""
        self.wake_ms = 0
        for index in (self.timers, self.expiry):
            if (due := index.next_ms()) is not None:
                self.wake(due)

    def wake(self, when: int) -> None:
        if not self.wake_ms or when < self.wake_ms:
            self.wake_ms = when
            heappush(self.wakes, (when, self.topic.number, self.index))
