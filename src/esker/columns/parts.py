"""What is known of a staged part of a bulk load. Apart from incoming.py, so that a node can know it without pyarrow."""

from __future__ import annotations

import msgspec

from esker.engine.config import TopicType


class Flaw(msgspec.Struct, frozen=True):
    """The first row of a part that not every topic can take."""

    row: int
    why: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A flaw is None when there is none."""

    rows: int
    size: int  # bytes of all its strings
    columns: list[str]
    topics: list[bytes]  # of the column `topic`
    json: Flaw | None  # a value that is no JSON text
    text: Flaw | None  # one that is no text, or too large for a record as one
    record: Flaw | None  # one too large for a record as it is
    sha256: str = ""  # of the whole file; none of one from before it was noted


UNSEEN = Flaw(0, "it was staged for values of another kind, and nobody has looked at these; stage it again")


def flaw_for(facts: Facts, kind: TopicType, value_format: str | None) -> Flaw | None:
    """What keeps these rows from a topic of this kind."""
    if not facts.rows:
        return None
    if value_format == "text":
        return facts.text
    if kind != TopicType.LOG and value_format != "json":
        return None
    return facts.json or (facts.record if kind == TopicType.LOG else None)
