"""The journal is the state: folding it gives the live machine, and folding any end of it again changes nothing.

The second rule is what a fuzzy checkpoint stands on (engine/events.py): the store may be ahead of its position.
"""

from __future__ import annotations

from random import Random

import pytest

from esker.engine import events
from esker.engine.events import decode_batch
from tests.engine.audit import audit
from tests.engine.dump import dump
from tests.engine.rig import Rig, fold
from tests.properties.traffic import live

SEEDS = range(40)


def lived(seed: int, steps: int = 250) -> Rig:
    rig = Rig(seed=seed)
    live(rig, Random(seed), steps)
    audit(rig.machine)
    return rig


@pytest.mark.parametrize("seed", SEEDS)
def test_the_journal_folded_from_empty_is_the_live_machine(seed: int) -> None:
    rig = lived(seed)
    again = fold(rig.batches)
    audit(again)
    assert dump(again, rig.now) == dump(rig.machine, rig.now)


@pytest.mark.parametrize("seed", SEEDS)
def test_folding_an_end_of_the_journal_twice_changes_nothing_but_counters(seed: int) -> None:
    rig = lived(seed)
    wanted = dump(rig.machine, rig.now, counters=False)
    dice = Random(seed)
    for _ in range(12):
        again = fold(rig.batches)
        fold(rig.batches[dice.randrange(len(rig.batches)) :], again)
        audit(again)
        assert dump(again, rig.now, counters=False) == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_a_state_ahead_of_its_position_ends_where_the_journal_does(seed: int) -> None:
    rig = lived(seed)
    wanted = dump(rig.machine, rig.now, counters=False)
    dice = Random(seed)
    for _ in range(12):
        position, ahead = sorted(dice.sample(range(len(rig.batches) + 1), 2))
        again = fold(rig.batches[position:], fold(rig.batches[:ahead]))
        audit(again)
        assert dump(again, rig.now, counters=False) == wanted


def test_the_same_seed_and_commands_make_the_same_events() -> None:
    assert lived(5).batches == lived(5).batches


def test_a_day_in_the_life_meets_every_kind_of_event() -> None:
    kinds = {type(event) for seed in SEEDS for batch in lived(seed).batches for event in decode_batch(batch)}
    assert kinds >= {*events.JobEvent.__args__, events.Purged, events.SeqReserved, events.TopicConfigured}
