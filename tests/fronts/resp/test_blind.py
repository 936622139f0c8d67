"""PING, ECHO and TIME of a client that is owed nothing do not wait for the disk; everything else does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from esker.journal.pace import Pace
from esker.testing import Broker
from esker.testing.faults import FaultyDisk
from tests.fronts.resp.wire import Simple, Wire, encoded


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def broker(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """Its disk counts as slow, so the loop waits for no sync."""
    monkeypatch.setattr(Pace, "quick", lambda *_: False)
    with Broker(disk=disk) as running, Wire(running.resp_port) as wire:
        assert isinstance(wire("ADDJOB", "q", "first", 0), Simple)
        yield running


def test_a_ping_does_not_wait_for_what_others_are_promised(broker: Broker, disk: FaultyDisk) -> None:
    with Wire(broker.resp_port) as producer, Wire(broker.resp_port) as other, Wire(broker.resp_port) as reader:
        with disk.hold_syncs(of=".segment") as held:
            producer.send(encoded("ADDJOB", "q", "held", 0))
            held.wait_begun()
            assert other("PING") == Simple("PONG")
            assert other("ECHO", "here") == b"here"
            assert isinstance(other("TIME"), list)
            reader.send(encoded("QLEN", "q"))
            assert reader.silent(), "what it would be told is not durable"
        assert isinstance(producer.reply(), Simple)
        assert reader.reply() == 2


@pytest.mark.parametrize("together", [True, False])
def test_a_ping_behind_work_of_its_own_keeps_its_place(broker: Broker, disk: FaultyDisk, together: bool) -> None:
    with Wire(broker.resp_port) as wire:
        with disk.hold_syncs(of=".segment") as held:
            wire.send(encoded("ADDJOB", "q", "held", 0) + (encoded("PING") if together else b""))
            held.wait_begun()
            if not together:
                wire.send(encoded("PING"))
            assert wire.silent()
        assert [type(wire.reply()), wire.reply()] == [Simple, Simple("PONG")]


@pytest.mark.parametrize("quiet", [["SKIP"], ["OFF", "ON"]])
def test_behind_work_without_a_reply_a_ping_is_the_sign_that_it_is_done(
    broker: Broker, disk: FaultyDisk, quiet: list[str]
) -> None:
    with Wire(broker.resp_port) as wire, disk.hold_syncs(of=".segment") as held:
        wire.send(encoded("CLIENT", "REPLY", quiet[0]) + encoded("ADDJOB", "q", "unheard", 0))
        held.wait_begun()
        if len(quiet) > 1:
            wire.send(encoded("CLIENT", "REPLY", quiet[1]))
        wire.send(encoded("PING"))
        assert wire.silent()
        held.release()
        if len(quiet) > 1:
            assert wire.reply() == Simple("OK")
        assert wire.reply() == Simple("PONG")
