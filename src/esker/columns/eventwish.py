"""What may be asked of the history: its columns and kinds by name, and a wish for some of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from esker.engine.events import Event, JobsAcked, JobsLeased

COLUMNS: Final = (
    "position", "ordinal", "time", "kind", "topic", "topic_number", "partition", "seq", "message_id", "priority",
    "attempts", "node", "tag", "lease", "reason", "due", "expires", "source_seq", "router", "detail",
)  # fmt: skip

# Jobs that were leased or acked together are told one by one: nobody who reads has to know that it was one event.
_TOLD_AS: Final[Mapping[type, str]] = {JobsLeased: "JobLeased", JobsAcked: "JobAcked"}


def kind_of(event: type) -> str:
    """The kind of the rows that events of a type become."""
    return _TOLD_AS.get(event) or event.__name__


KINDS: Final = tuple(sorted({kind_of(event) for event in Event.__args__}))

# Not for a key that reaches some topics only: they tell of others, or of the node.
_OF_ALL: Final = frozenset({"RouterPut", "RouterDropped", "NodeStarted", "LoadAdvanced"})


class Wanted(msgspec.Struct, frozen=True):
    """What a reader asks for, and may see. None: all."""

    columns: tuple[str, ...] = COLUMNS
    kinds: frozenset[str] | None = None
    topics: frozenset[bytes] | None = None
    prefixes: tuple[bytes, ...] = ()  # of topics; where there are some, rows of no topic are left out

    def kind(self, name: str) -> bool:
        return (self.kinds is None or name in self.kinds) and not (self.prefixes and name in _OF_ALL)

    def topic(self, name: bytes | None) -> bool:
        """Of a row of some topic, whose name may not be known."""
        if self.topics is not None and name not in self.topics:
            return False
        return not self.prefixes or (name is not None and name.startswith(self.prefixes))

    @property
    def by_topic(self) -> bool:
        return self.topics is not None or len(self.prefixes) > 0


EVERYTHING: Final = Wanted()
