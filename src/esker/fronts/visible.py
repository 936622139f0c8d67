"""The topics and routers that a key may see, at the cost of these and not of all there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from esker.engine.commands import ListRouters, ListTopics
from esker.engine.replies import RouterPage, RouterView, TopicPage, TopicStatus
from esker.fronts.access import Key
from esker.node.interface import Broker

_PAGE: Final = 1000


def topics_seen(broker: Broker, key: Key) -> list[TopicStatus]:
    """In order of their names."""
    found: dict[bytes, TopicStatus] = {}
    for prefix in key.prefixes or (b"",):
        after, more = b"", True
        while more:
            page = broker.handle(ListTopics(prefix=prefix, after=after, count=_PAGE))
            assert isinstance(page, TopicPage)
            found.update((status.name, status) for status in page.topics)
            more = page.more and len(page.topics) > 0
            after = page.topics[-1].name if page.topics else after
    return [found[name] for name in sorted(found)] if len(key.prefixes) > 1 else list(found.values())


def routers_seen(broker: Broker, key: Key) -> Iterator[RouterView]:
    """Those whose name and both ends the key reaches."""
    seen: set[bytes] = set()
    for prefix in key.prefixes or (b"",):
        after, more = b"", True
        while more:
            page = broker.handle(ListRouters(prefix, None, None, after, _PAGE))
            assert isinstance(page, RouterPage)
            for router in page.routers:
                if router.name not in seen and reaches_router(key, router):
                    seen.add(router.name)
                    yield router
            more = page.more and len(page.routers) > 0
            after = page.routers[-1].name if page.routers else after


def reaches_router(key: Key, router: RouterView) -> bool:
    return all(map(key.reaches, (router.name, router.source, router.dest)))
