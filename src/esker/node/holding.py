"""Who wants to know at once when leases end: streams that push jobs, and push the next when one was acked.

The acks come on other connections, so the shard tells. It costs one truth test while no such stream is open. An ack or
nack by a holder tells that holder alone; whatever else may end leases (time, a purge, an ack by message id) tells
everybody it may concern, and once a second everybody is told, whatever happened. Being told for nothing is harmless:
whoever is told looks which leases are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from esker.engine import commands
from esker.engine.ids import TOPIC_MASK, TOPIC_SHIFT
from esker.engine.machine import Machine

_BY_ID = (
    commands.Ack, commands.Nack, commands.Delete, commands.Requeue, commands.Withdraw,
)  # fmt: skip
_BY_TOPIC = (
    commands.Purge, commands.DeleteTopic, commands.DropTopic, commands.DeleteRecords, commands.DeleteMore,
    commands.PauseTopic, commands.ConfigureTopic, commands.PutTopic, commands.CreateTopic,
)  # fmt: skip
_EVERYWHERE = (commands.DeleteAllTopics, commands.Release)


class Holding:
    """`wake` is called until `cancel`; it must not call `handle`."""

    __slots__ = ("_room", "holder", "topic", "wake")

    def __init__(self, room: HoldingRoom, topic: bytes, holder: bytes, wake: Callable[[], None]) -> None:
        self._room = room
        self.topic = topic
        self.holder = holder
        self.wake = wake

    def cancel(self) -> None:
        self._room.leave(self)


class HoldingRoom:
    """Those who hold leases: `topics` has them by topic and holder, and is empty while there is nobody."""

    def __init__(self) -> None:
        self.topics: dict[bytes, dict[bytes, list[Holding]]] = {}

    def enter(self, topic: bytes, holder: bytes, wake: Callable[[], None]) -> Holding:
        holding = Holding(self, topic, holder, wake)
        self.topics.setdefault(topic, {}).setdefault(holder, []).append(holding)
        return holding

    def leave(self, holding: Holding) -> None:
        """Harmless when it has left already."""
        holders = self.topics.get(holding.topic, {})
        holdings = holders.get(holding.holder, [])
        if holding in holdings:
            holdings.remove(holding)
            if not holdings:
                del holders[holding.holder]
            if not holders:
                del self.topics[holding.topic]

    def tell(self, command: commands.Command, machine: Machine) -> None:
        """After `command` was handled, and before `machine.woken` is emptied."""
        if isinstance(command, commands.AckHeld | commands.NackHeld):
            for holding in self.topics.get(command.topic, {}).get(command.holder, ()):
                holding.wake()
        elif isinstance(command, _BY_TOPIC):
            self._tell_all((command.topic,))
        elif isinstance(command, _BY_ID):
            numbers = {job_id >> TOPIC_SHIFT & TOPIC_MASK for job_id in command.ids}
            self._tell_all(topic.name for number in numbers if (topic := machine.topics.get(number)) is not None)
        elif isinstance(command, commands.Tick):
            self._tell_all(machine.woken)  # a lease that ran out made its job ready
        elif isinstance(command, _EVERYWHERE):
            self.tell_everybody()

    def tell_everybody(self) -> None:
        self._tell_all(list(self.topics))

    def _tell_all(self, names: Iterable[bytes]) -> None:
        for name in names:
            for holdings in self.topics.get(name, {}).values():
                for holding in holdings:
                    holding.wake()
