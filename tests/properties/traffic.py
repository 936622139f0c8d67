"""A day in the life of a shard, drawn from a seed: every kind of command, in proportions that reach deep states."""

from __future__ import annotations

from random import Random

import msgspec

from esker.engine.commands import (
    Ack,
    AckHeld,
    Append,
    ConfigureTopic,
    CreateTopic,
    Delete,
    DeleteRecords,
    DeleteTopic,
    Details,
    EnqueueAlike,
    Extend,
    ExtendHeld,
    Lease,
    LeaseCohort,
    Nack,
    NackHeld,
    NewRecord,
    PauseTopic,
    Purge,
    Read,
    Release,
    ReplayDeadLetters,
    Reprioritise,
    Requeue,
    Withdraw,
    Working,
)  # fmt: skip
from esker.engine.config import Backoff, Durability, Mode, Pause, TopicConfig
from esker.engine.ids import place
from tests.engine.rig import Rig

CONFIGS = {
    b"plain": TopicConfig(),
    b"keyed": TopicConfig(partitions=3, mode=Mode.MAX, max_deliveries=2, dead_letter=b"grave"),
    b"disk": TopicConfig(
        durability=Durability.DISK, backoff=Backoff(base_ms=50), max_deliveries=1, dead_letter=b"grave"
    ),
    b"capped": TopicConfig(cap_records=6, max_deliveries=2, dead_letter=b"queued grave"),
}


def live(rig: Rig, dice: Random, steps: int) -> None:
    """Runs `steps` random commands. Nothing in it is ephemeral, so the journal alone says all."""
    for name, config in CONFIGS.items():
        rig.do(CreateTopic(name, config))
    rig.do(CreateTopic(b"queued grave", TopicConfig()))
    ids: list[int] = []
    for _ in range(steps):
        topic = dice.choice([*CONFIGS, b"lazy"])
        some = dice.sample(ids, min(len(ids), dice.randint(1, 4)))
        kind = dice.random()
        if kind < 0.3:
            if topic not in rig.machine.names or not rig.machine.names[topic].pause & Pause.IN:
                ids.append(_add(rig, dice, topic))
        elif kind < 0.5:
            leased = rig.lease(dice.randint(1, 3), topic, dice.choice([None, 10, 500]), b"w%d" % dice.randint(0, 2))
            ids += [each.id for each in leased]
        elif kind < 0.6:
            rig.pass_ms(dice.choice([0, 1, 10, 100, 1000]))
        elif kind < 0.95:
            rig.do(dice.choice((
                Ack(some[:1]), Nack(some), Nack(some, delay_ms=20), Extend(some, 300), Release(b"w1"), Requeue(some),
                Withdraw(some), Delete(some[:1]), Reprioritise(some, dice.randint(-3, 3)),
                ReplayDeadLetters(b"grave", None, 2), Working(some[0]) if some else Release(b"w0"),
                ReplayDeadLetters(b"queued grave", None, 2),
            )))  # fmt: skip
            _use_records(rig, dice, topic, [place(each).seq for each in some])
        else:
            _change_topic(rig, dice, topic)
        ids = ids[-60:]


def _use_records(rig: Rig, dice: Random, topic: bytes, seqs: list[int]) -> None:
    if topic not in rig.machine.names:
        return  # a write would make it as a log
    holder = b"w%d" % dice.randint(0, 2)
    records = [NewRecord(dice.randbytes(3), dice.choice([b"", b"t", b"u"])) for _ in range(dice.randint(1, 3))]
    rig.do(dice.choice((
        Append(topic, records), Append(topic, records, b"k%d" % dice.randint(0, 5)), Read(topic),
        AckHeld(topic, seqs, holder), NackHeld(topic, seqs, holder), ExtendHeld(topic, seqs, holder, 300),
        DeleteRecords(topic, tag=b"t"), DeleteRecords(topic, min(seqs, default=0)),
        EnqueueAlike(topic, [b"a", b"b"], 100, 5000), LeaseCohort(topic, [Lease(topic, 2, None, holder)] * 2),
    )))  # fmt: skip


def _add(rig: Rig, dice: Random, topic: bytes) -> int:
    details = dice.choice(
        [None, None, Details(delay_ms=30), Details(key=b"k%d" % dice.randint(0, 9)), Details(tag=b"t")]
    )
    retry_ms = dice.choice([None, 0, 50, 1000])
    ttl_ms = dice.choice([None, None, 700, 5000])
    return rig.add(dice.randbytes(dice.randint(0, 9)), dice.randint(-2, 2), topic, retry_ms, ttl_ms, details)


def _change_topic(rig: Rig, dice: Random, topic: bytes) -> None:
    kind = dice.randint(0, 4)
    if kind == 0:
        rig.do(Purge(topic))
    elif kind == 1 and topic in rig.machine.names:
        rig.do(DeleteTopic(topic))
        rig.do(CreateTopic(topic, CONFIGS.get(topic, TopicConfig())))
    elif kind == 2:
        rig.do(PauseTopic(topic, dice.choice(list(Pause))))
    elif topic in CONFIGS:
        rig.do(ConfigureTopic(topic, msgspec.structs.replace(CONFIGS[topic], mode=dice.choice(list(Mode)))))
        rig.do(PauseTopic(topic, Pause.NONE))
