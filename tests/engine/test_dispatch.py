"""Tables that dispatch cover their unions: no command without a handler, no event that is not folded."""

from __future__ import annotations

from esker.engine import commands, events, machine
from esker.engine.config import Mode
from esker.engine.logs.partition import EVOLVE_LOG
from esker.engine.queues.evolve import EVOLVE
from esker.engine.queues.ready import SIGN


def test_every_command_has_a_handler_and_every_handler_a_command() -> None:
    assert set(machine.HANDLERS) == set(commands.Command.__args__)


def test_every_event_is_folded_in_exactly_one_place() -> None:
    assert set(machine.FOLD) | set(machine.EVOLVE) == set(events.Event.__args__)
    assert not set(machine.FOLD) & set(machine.EVOLVE)


def test_every_kind_of_partition_folds_its_own_events() -> None:
    assert set(EVOLVE_LOG) == {*events.LogEvent.__args__, events.SeqReserved}
    assert set(EVOLVE) & set(EVOLVE_LOG) == {events.SeqReserved, events.KeyRemembered}
    assert set(EVOLVE) | set(EVOLVE_LOG) == set(machine.EVOLVE)


def test_every_job_event_is_an_event() -> None:
    jobs, all_events = events.JobEvent.__args__, events.Event.__args__
    assert set(jobs) < set(all_events)


def test_every_mode_has_a_sign() -> None:
    assert set(SIGN) == set(Mode)


def test_the_tags_of_events_are_for_ever() -> None:
    tags = {each.__struct_config__.tag: each.__name__ for each in events.Event.__args__}
    assert tags == {
        1: "TopicCreated", 2: "TopicConfigured", 3: "TopicDeleted", 4: "TopicPaused", 5: "SeqReserved", 6: "Purged",
        7: "NodeStarted", 10: "Enqueued", 11: "JobLeased", 12: "JobAcked", 13: "JobReturned", 14: "LeaseExtended",
        15: "JobWithdrawn", 16: "JobReprioritised", 17: "JobRemoved", 18: "JobReplayed", 19: "JobsEnqueued",
        20: "KeyRemembered", 21: "QueueTrimmed", 22: "JobsLeased", 23: "JobsAcked", 30: "RecordsAppended",
        31: "LogTrimmed", 32: "RecordsDeleted", 33: "SeqsLost", 34: "LogArchived", 40: "RouterPut",
        41: "RouterDropped", 42: "RecordsForwarded", 50: "LoadAdvanced",
    }  # fmt: skip
