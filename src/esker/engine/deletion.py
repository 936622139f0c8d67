"""Deleting many records in steps, so that nobody waits for a delete of a million.

    reply = machine.handle(DeleteRecords(...), now)          the first step
    while reply.rest is not None:                            others have their turn in between
        reply = machine.handle(DeleteMore(topic, reply.rest), now)

What is to be deleted is fixed at the first step: records that come later stay, whatever their tag. In between a reader
sees that some are gone and others are not. Each step has its own events, so after a crash in the middle some are gone;
who asked was not answered, and asks again.
"""

from __future__ import annotations

from collections.abc import Iterator


class Deletion:
    """The rest of a delete. It lives in memory only, with who asked for it."""

    __slots__ = ("deleted", "steps", "topic")

    def __init__(self, topic: int, steps: Iterator[int]) -> None:
        """`steps` does one bounded step each time, and says how many records went."""
        self.topic = topic  # its number: a topic of the same name that is made meanwhile is another one
        self.steps = steps
        self.deleted = 0

    def go_on(self) -> bool:
        """Goes on for two steps: the second one of a small delete finds that all is done. False: it is."""
        for _ in range(2):
            gone = next(self.steps, None)
            if gone is None:
                return False
            self.deleted += gone
        return True
