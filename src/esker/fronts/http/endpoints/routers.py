"""Routers: make or change one, look at one or many, remove one. A key reaches a router if it reaches both its ends."""

from __future__ import annotations

import msgspec

from esker.engine.commands import DropRouter, ListRouters, PutRouter, RouterState
from esker.engine.config import Guarantee, RouterOptions
from esker.engine.replies import Done, Reply, RouterPage, RouterView
from esker.errors import Code, Refusal
from esker.fronts.http.answers import (
    ListedRouter,
    RouterAnswer,
    RouterDeletedAnswer,
    RoutersAnswer,
    encode,
)
from esker.fronts.http.bodies import RouterBody
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.cursors import from_cursor, to_cursor
from esker.fronts.http.endpoints.topics import CURSOR, PAGE_SIZE
from esker.fronts.http.errors import expect, forbidden, invalid
from esker.fronts.http.names import router_name, topic_name
from esker.fronts.http.payloads import text
from esker.fronts.http.selectors import from_tags, to_tags
from esker.fronts.visible import reaches_router

_router_decoder = msgspec.json.Decoder(RouterBody)


def _named(call: Call) -> bytes:
    name = call.params["router"]
    call.reach(name.encode("utf-8", "surrogateescape"))
    return router_name(name)


async def put_router(call: Call) -> Answer:
    name = _named(call)
    body = await call.json(_router_decoder)
    source, dest = topic_name(body.source, "source"), topic_name(body.dest, "dest")
    for end in (source, dest):
        call.reach(end, in_body=True)
    if source == dest:
        raise invalid(f"source and dest are both {body.source!r}; they must differ")
    tags = None if body.filter is None else to_tags(body.filter, "filter")
    front = call.front
    front.census.allow_router(name, front.options)
    options = RouterOptions(
        preserve_node=body.preserve_node,
        preserve_tag=body.preserve_tag,
        filter_tag=None if tags is None else tags.tag,
        filter_prefix=tags is not None and tags.prefix,
        allow_cycle=body.allow_cycle,
        guarantee=Guarantee(body.guarantee),
    )
    known = front.broker.handle(RouterState(name))
    if isinstance(known, RouterView):
        _reach_ends(call, known)
    view = expect(RouterView, _without_names(call, PutRouter(name, source, dest, options, body.create_dest)), dest)
    answer = _shown(view)
    answer.created = view.created
    return Answer(encode(answer), status=201 if view.created else 200)


async def get_router(call: Call) -> Answer:
    name = _named(call)
    view = expect(RouterView, call.front.broker.handle(RouterState(name)))
    _reach_ends(call, view)
    answer = _shown(view)
    answer.forwarded_total = view.forwarded
    return Answer(encode(answer))


async def delete_router(call: Call) -> Answer:
    name = _named(call)
    broker = call.front.broker
    found = broker.handle(RouterState(name))
    if not isinstance(found, Refusal):
        _reach_ends(call, expect(RouterView, found))
    done = expect(Done, broker.handle(DropRouter(name)))
    return Answer(encode(RouterDeletedAnswer(name.decode(), done.count > 0)))


async def list_routers(call: Call) -> Answer:
    query = call.query
    size = PAGE_SIZE.read(call)
    after = from_cursor(CURSOR.read(call))
    prefix = query.get("prefix", "").encode("utf-8", "surrogateescape")
    source, dest = _wanted(query.get("source")), _wanted(query.get("dest"))
    listed: list[RouterView] = []
    more = True
    while more and len(listed) <= size:  # one more than asked for tells whether there is a next page
        command = ListRouters(prefix, source, dest, after, size + 1 - len(listed))
        page = expect(RouterPage, call.front.broker.handle(command))
        listed += [view for view in page.routers if reaches_router(call.key, view)]
        more = page.more and len(page.routers) > 0
        after = page.routers[-1].name if page.routers else after
    answer = RoutersAnswer([_listed(view) for view in listed[:size]])
    if len(listed) > size:
        answer.next_cursor = to_cursor(listed[size - 1].name)
    return Answer(encode(answer))


def _without_names(call: Call, command: PutRouter) -> Reply:
    """Why routers do not go together is told by the names of others, which a key with prefixes may not see."""
    reply = call.front.broker.handle(command)
    if not call.key.prefixes or not isinstance(reply, Refusal):
        return reply
    if reply.code == Code.ROUTER_CYCLE:
        return Refusal(reply.code, "records would go round; with allow_cycle they stop after a few hops")
    if reply.code == Code.TOPIC_INCOMPATIBLE:
        return Refusal(reply.code, "this router does not go together with others at its ends")
    return reply


def _wanted(name: str | None) -> bytes | None:
    return name.encode("utf-8", "surrogateescape") if name else None


def _reach_ends(call: Call, view: RouterView) -> None:
    """The names of ends that are not reached are not told."""
    if not reaches_router(call.key, view):
        raise forbidden(f"this key does not reach both ends of router {text(view.name)!r}")


def _shown(view: RouterView) -> RouterAnswer:
    options = view.options
    return RouterAnswer(
        router=text(view.name),
        source=text(view.source),
        dest=text(view.dest),
        preserve_node=options.preserve_node,
        preserve_tag=options.preserve_tag,
        filter=from_tags(options.filter_tag, options.filter_prefix),
        allow_cycle=options.allow_cycle,
        guarantee=options.guarantee.value,
    )


def _listed(view: RouterView) -> ListedRouter:
    return ListedRouter(
        text(view.name), text(view.source), text(view.dest), view.options.guarantee.value, view.forwarded
    )
