"""What a router makes of a record: nothing, the very same body, or one that differs as its options say.

Pure functions of router, source and record, because copies are made twice: when a record is forwarded, and again when
the journal is folded (`events.RecordsForwarded`). Both must give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from esker.engine import limits
from esker.engine.config import Guarantee, RouterOptions
from esker.engine.events import RecordBody
from esker.engine.logs.routers import Router
from esker.engine.meta import meta_values
from esker.engine.topic import Topic

STAMP = "_topics_router"
ORIGINAL_META = "_topics_original_meta"

_encode = msgspec.json.Encoder().encode
_decode_any = msgspec.json.Decoder(msgspec.Raw).decode


class Stamp(msgspec.Struct, frozen=True):
    """Where a copy comes from. The key is the same however often the record is forwarded, and no other copy's."""

    idempotency_key: str
    router: str
    source_topic: str
    source_topic_id: int
    source_epoch: int
    source_seq: int


def wants(options: RouterOptions) -> Callable[[RecordBody], bool] | None:
    """Which records a router copies; None: all of them."""
    tag, prefix, counts_hops = options.filter_tag, options.filter_prefix, options.allow_cycle
    if tag is None and not counts_hops:
        return None

    def wanted(body: RecordBody) -> bool:
        if counts_hops and body.hops >= limits.ROUTER_HOPS_MAX:
            return False
        if tag is None:
            return True
        # A record without a tag has none that could match, not an empty one.
        return bool(body.tag) and (body.tag.startswith(tag) if prefix else body.tag == tag)

    return wanted


def changes(options: RouterOptions) -> bool:
    """Whether copies may differ from their originals."""
    keeps = options.preserve_node and options.preserve_tag
    return not keeps or options.allow_cycle or options.guarantee == Guarantee.EXACTLY_ONCE


def copy_of(router: Router, source: Topic, seq: int, body: RecordBody) -> RecordBody:
    options = router.options
    return RecordBody(
        body.data,
        body.tag if options.preserve_tag else b"",
        body.node if options.preserve_node else b"",
        stamped(router, source, seq, body.meta) if options.guarantee == Guarantee.EXACTLY_ONCE else body.meta,
        body.hops + 1 if options.allow_cycle else body.hops,
    )


def stamped(router: Router, source: Topic, seq: int, meta: bytes) -> bytes:
    """The meta with the stamp in it; an original that has no room for it goes inside, whole."""
    name, number = _text(router.name), source.number
    stamp = Stamp(f"{name}:{number}:{number}:{seq}", name, _text(source.name), number, number, seq)
    values = meta_values(meta)
    if values is not None:
        values.pop(STAMP, None)
        if len(values) < limits.META_KEYS_MAX:
            text = _encode({**values, STAMP: stamp})
            if len(text) <= limits.META_BYTES_MAX:
                return text
    return _encode({ORIGINAL_META: _original(meta), STAMP: stamp})


def _original(meta: bytes) -> msgspec.Raw | str:
    """As JSON, whatever it is; text that is no JSON stays text."""
    try:
        return _decode_any(meta)
    except msgspec.DecodeError:
        return _text(meta)


def _text(name: bytes) -> str:
    """Any bytes as text that differs where they do."""
    return name.decode("utf-8", "backslashreplace")
