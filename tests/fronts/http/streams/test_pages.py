"""Readers at the same place share one read; nobody is given yesterday's page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from esker.engine.commands import Append, DeleteRecords, NewRecord
from esker.fronts.http.fragments import Shape
from esker.fronts.http.streams.followers import Batch, CaughtUp, Follower, Notice
from esker.fronts.http.streams.pages import Pages, View
from esker.node.runtime import Node
from esker.node.settings import Settings

TOPIC = b"t"


def play(data: Path, scene: Callable[[Node, Pages], Awaitable[None]]) -> None:
    async def run() -> None:
        node = Node(Settings(data=str(data)))
        try:
            node.watch([TOPIC], lambda: None)
            await scene(node, Pages(node))
        finally:
            await node.close()

    asyncio.run(run())


def write(node: Node, *data: bytes) -> None:
    node.handle(Append(TOPIC, [NewRecord(one) for one in data]))


def told_now(follower: Follower, pages: Pages) -> list[Notice]:
    """What is told without a look into the archive."""
    notices = follower.read(pages)
    assert notices is not None
    return notices


def test_a_thousand_readers_cost_one_read(tmp_path: Path) -> None:
    async def scene(node: Node, pages: Pages) -> None:
        write(node, b"1", b"2")
        followers = [Follower("t", 0, View()) for _ in range(1000)]
        told = [told_now(follower, pages) for follower in followers]
        assert pages.read_count == 1
        batches = {id(notice.page) for notices in told for notice in notices if isinstance(notice, Batch)}
        assert len(batches) == 1
        assert all(isinstance(notices[-1], CaughtUp) for notices in told)

    play(tmp_path, scene)


def test_readers_with_other_wishes_get_pages_of_their_own(tmp_path: Path) -> None:
    async def scene(node: Node, pages: Pages) -> None:
        write(node, b"1", b"2")
        for view in (View(), View(limit=1), View(shape=Shape(tags=True)), View()):
            pages.read("t", 0, view)
        assert pages.read_count == 3
        assert pages.read("t", 1, View()) is not pages.read("t", 0, View())

    play(tmp_path, scene)


def test_a_page_is_not_older_than_the_last_record(tmp_path: Path) -> None:
    async def scene(node: Node, pages: Pages) -> None:
        write(node, b"1")
        follower = Follower("t", 0, View())
        follower.read(pages)
        assert follower.idle(node.revision(TOPIC))
        write(node, b"2")
        assert not follower.idle(node.revision(TOPIC))
        late = Follower("t", 0, View())
        (batch, _) = told_now(late, pages)
        assert isinstance(batch, Batch)
        assert batch.to_seq == 2

    play(tmp_path, scene)


def test_a_page_does_not_outlive_the_turn(tmp_path: Path) -> None:
    async def scene(node: Node, pages: Pages) -> None:
        write(node, b"1", b"2")
        first = pages.read("t", 0, View())
        node.handle(DeleteRecords(TOPIC, before_seq=2))
        await asyncio.sleep(0)
        second = pages.read("t", 0, View())
        assert first is not second
        assert second.found is not None
        assert [record.seq for record in second.found.records] == [2]

    play(tmp_path, scene)
