"""Meta: the small JSON object that a job or record carries beside its data, kept as the text it came in.

Nothing here looks at the values: they pass through as they are. Only who adds keys of his own takes the object apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from esker.engine import limits

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def meta_problem(meta: bytes) -> str | None:
    """What is wrong with a meta, in one sentence; None when it is sound. An empty one is none at all, which is fine."""
    if not meta:
        return None
    if len(meta) > limits.META_BYTES_MAX:
        return f"{len(meta)} bytes of meta; at most {limits.META_BYTES_MAX}"
    values = meta_values(meta)
    if values is None:
        return "meta is not a JSON object"
    if len(values) > limits.META_KEYS_MAX:
        return f"{len(values)} meta keys; at most {limits.META_KEYS_MAX}"
    return None


def meta_values(meta: bytes) -> dict[str, msgspec.Raw] | None:
    """The values by key, each still a JSON text; None where it is no JSON object."""
    if not meta:
        return {}
    try:
        return _decode(meta)
    except msgspec.DecodeError:
        return None


def stamped(meta: bytes, prefix: str, stamps: Mapping[str, str]) -> bytes:
    """The meta with other keys of this prefix: `stamps` instead of those that were there. Bounds do not apply.

    An object that is left empty is no meta at all.
    """
    values = {key: value for key, value in (meta_values(meta) or {}).items() if not key.startswith(prefix)}
    everything = {**values, **stamps}
    return _encode(everything) if everything else b""
