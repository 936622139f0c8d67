"""Routers in the store: one key each, holding its definition and how far it has come.

All of them go into the write that moves the position of a checkpoint, never into an earlier slice. Copies are made anew
when their events are folded (engine/events.py, `RecordsForwarded`), so a fold must find exactly the routers, with
exactly the options, that were there at the position it starts from: one that is dropped or changed too early in the
store would take its copies with it.
"""

from __future__ import annotations

import msgspec

from esker.engine.config import RouterOptions
from esker.engine.logs.routers import Router, Routers
from esker.engine.machine import Machine
from esker.store import keys
from esker.store.interface import Store


class RouterHeader(msgspec.Struct, frozen=True, array_like=True):
    number: int
    name: bytes
    source: int
    dest: int
    options: RouterOptions
    created_ms: int
    cursor: int
    forwarded: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RouterHeader).decode


class RouterShare:
    """What had to be saved of the routers when the checkpoint began."""

    def __init__(self, routers: Routers) -> None:
        """Takes the changes off the routers."""
        self.puts = [_put(router) for _, router in sorted(routers.dirty.items())]
        self.deletes = [keys.router_key(number) for number in routers.dropped]
        routers.dirty, routers.dropped = {}, []


def _put(router: Router) -> tuple[bytes, bytes]:
    header = RouterHeader(
        router.number, router.name, router.source, router.dest, router.options, router.created_ms, router.cursor,
        router.forwarded,
    )  # fmt: skip
    return keys.router_key(router.number), _encode(header)


def load_routers(store: Store, machine: Machine) -> None:
    for _, value in store.scan(*keys.ROUTERS):
        header = _decode(value)
        router = Router(header.number, header.name, header.source, header.dest, header.created_ms, header.options)
        router.cursor = header.cursor
        router.forwarded = header.forwarded
        machine.routers.add(router)
