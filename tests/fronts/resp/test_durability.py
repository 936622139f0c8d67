"""A reply leaves only after what it promises is on disk, in order, and never when the disk has failed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from esker.journal.pace import Pace
from esker.testing.broker import Broker
from esker.testing.faults import FaultyDisk
from tests.fronts.resp.wire import Simple, Wire, encoded


def test_replies_wait_for_the_disk_and_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker, Wire(broker.resp_port) as wire, Wire(broker.resp_port) as other:
        assert isinstance(wire("ADDJOB", "q", "first", 0), Simple)
        may_sync, sync = threading.Event(), os.fdatasync

        def held(descriptor: int) -> None:
            assert may_sync.wait(20)
            sync(descriptor)

        monkeypatch.setattr(os, "fdatasync", held)
        wire.send(encoded("ADDJOB", "q", "second", 0) + encoded("PING"))
        other.send(encoded("QLEN", "q"))  # it may have seen the job that is not on disk yet
        assert wire.silent()
        wire.send(encoded("QLEN", "q") + encoded("PING", "last"))
        assert wire.silent()
        may_sync.set()
        added, pong, length, last = wire.replies(4)
        assert isinstance(added, Simple)
        assert (pong, length, last) == (Simple("PONG"), 2, b"last")
        assert other.reply() in (1, 2)


def test_a_failed_disk_is_told_to_everyone_who_waited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broker = Broker(data=str(tmp_path / "data")).start()
    with Wire(broker.resp_port) as wire, Wire(broker.resp_port) as other:
        assert isinstance(wire("ADDJOB", "q", "kept", 0), Simple)

        def broken(descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fdatasync", broken)
        wire.send(encoded("ADDJOB", "q", "lost", 0) + encoded("QLEN", "q"))
        for reply in wire.replies(2):
            assert str(reply).startswith("MISCONF ")
        assert str(other("ADDJOB", "q", "refused", 0)).startswith("MISCONF ")
        assert other("PING") == Simple("PONG")
    monkeypatch.undo()
    broker.stop()
    with Broker(data=broker.data) as again, Wire(again.resp_port) as wire:
        assert wire("QLEN", "q") in (1, 2)  # "may be lost": what failed may or may not have reached the disk


def test_jobs_on_disk_are_given_out_while_others_wait_for_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "quick", lambda pace, now: False)  # the journal's thread waits for the disk
    disk = FaultyDisk()
    with Broker(disk=disk) as broker, Wire(broker.resp_port) as wire, Wire(broker.resp_port) as other:
        for body in ("first", "second"):
            assert isinstance(wire("ADDJOB", "q", body, 0), Simple)
        time.sleep(0.002)
        wire("TOPIC", "CREATE", "later")  # what is known to be on disk with it is all from a millisecond before
        with disk.hold_syncs(of=".segment") as held:
            wire.send(encoded("ADDJOB", "q", "third", 0))
            held.wait_begun()
            (job,) = listed(other("GETJOB", "FROM", "q"))
            assert listed(job)[2] == b"first"
            wire.send(encoded("GETJOB", "FROM", "q"))
            assert wire.silent(), "its replies keep their order"
            other.send(encoded("GETJOB", "FROM", "q"))
            assert other.silent(), "this one is not on disk yet"
            held.release()
        assert isinstance(wire.reply(), Simple)
        assert listed(listed(wire.reply())[0])[2] == b"second"
        assert listed(listed(other.reply())[0])[2] == b"third"


def listed(reply: object) -> list[object]:
    assert isinstance(reply, list)
    return reply
