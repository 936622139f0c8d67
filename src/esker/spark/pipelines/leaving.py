"""Why jobs leave: what must be true of a job and its topic for each reason that the history gives.

Each function says what was expected and what was found instead, or None where the reason holds. They judge one event
by what is known before it; the fold (fold.py) reports.
"""

from __future__ import annotations

from typing import Final

from esker.spark.pipelines.codes import Job, State
from esker.spark.pipelines.facts import Config

# A broker says "everything below" instead of naming single jobs only from so many jobs on (engine/queues/retention.py).
PURGED_TOGETHER_MIN: Final = 1000

Problem = tuple[str, str]  # expected, found


def expiry_problem(job: Job, now: int) -> Problem | None:
    if not job.expires_ms:
        return "no expiry: the job has none", f"it expired at {now}"
    if now < job.expires_ms:
        return f"an expiry at {job.expires_ms} or later", f"it expired at {now}"
    return None


def eviction_problem(job: Job, config: Config | None, living: int | None) -> Problem | None:
    """`living`: how many jobs the partition has that a cap counts; None: not all are known."""
    if job.state == State.SPENT or config is None or config.cap_records is None:
        return None
    if not config.cap_records and not config.cap_bytes:
        return "no eviction: the topic has no cap", "it was evicted"
    if config.cap_bytes or config.partitions > 1 or living is None or living > config.cap_records:
        return None
    return f"no eviction with {living} jobs and room for {config.cap_records}", "it was evicted"


def dead_letter_problem(job: Job, config: Config | None) -> Problem | None:
    if config is None:
        return None
    if config.dead_letter is None:
        return "no dead letter: the topic names no place for one", "it left as one"
    most = config.most_deliveries(job.most)
    if 0 < most <= job.attempts:
        return None
    limit = f"after {most} deliveries" if most else "without a limit of deliveries"
    return f"no dead letter {'before that many' if most else 'at all'}, {limit}", f"it left after {job.attempts}"


def is_used_up(job: Job, config: Config | None) -> bool:
    """Whether the next delivery would be one too many: then a dead letter is made instead."""
    return config is not None and 0 < config.most_deliveries(job.most) <= job.attempts


def ack_problem(job: Job, now: int) -> Problem | None:
    if now < job.leased_ms:
        return f"an ack at {job.leased_ms} or later, when it was leased", f"an ack at {now}"
    return None


def purge_problem(below: int, reach: bool, next_seq: int | None, gone: int, living: int | None) -> Problem | None:
    """`reach`: `below` is where the next seq may be. `gone`: how many jobs of those that are known the purge takes, of
    `living`; None: not all are known."""
    if next_seq is not None and below > next_seq and not reach:
        return f"a purge below seq {next_seq} at most, the next one", f"one below seq {below}"
    if living is None:
        return None
    if not gone:
        return "no purge where there are no jobs", f"a purge below seq {below}"
    if gone < living and gone <= PURGED_TOGETHER_MIN:
        return (
            f"a purge of all {living} jobs, or of more than {PURGED_TOGETHER_MIN}",
            f"one of {gone} jobs, below seq {below}",
        )
    return None
