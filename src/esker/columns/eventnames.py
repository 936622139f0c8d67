"""What numbers in events stand for, as far as it is known: from what is there now, and from the history itself."""

from __future__ import annotations

from collections.abc import Iterable

from esker.engine import events

# Numbers are never used again, so a name that is known stays true. Past this many, the names heard of first go.
_NAMES_MAX = 1 << 20


class Names:
    def __init__(self) -> None:
        self._topics: dict[int, bytes] = {}
        self._routers: dict[int, tuple[bytes, int]] = {}  # name, and the number of its destination

    def topic_is(self, number: int, name: bytes) -> None:
        self._topics[number] = name
        if len(self._topics) > _NAMES_MAX:
            del self._topics[next(iter(self._topics))]

    def router_is(self, number: int, name: bytes, dest: int) -> None:
        self._routers[number] = name, dest
        if len(self._routers) > _NAMES_MAX:
            del self._routers[next(iter(self._routers))]

    def learn(self, happened: Iterable[events.Event]) -> None:
        for event in happened:
            if isinstance(event, events.TopicCreated):
                self.topic_is(event.topic, event.name)
            elif isinstance(event, events.RouterPut):
                self.router_is(event.router, event.name, event.dest)

    def known(self, number: int) -> bytes | None:
        return self._topics.get(number)

    def topic(self, number: int) -> str:
        """A name; the number where the name is not known."""
        name = self._topics.get(number)
        return str(number) if name is None else text(name)

    def router(self, number: int) -> str:
        known = self._routers.get(number)
        return str(number) if known is None else text(known[0])

    def dest(self, router: int) -> int | None:
        known = self._routers.get(router)
        return None if known is None else known[1]


def text(value: bytes) -> str:
    """Names may be any bytes; those that are no text are shown by their codes."""
    return value.decode("utf-8", "backslashreplace")
