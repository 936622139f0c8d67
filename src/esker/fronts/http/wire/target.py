"""What a request line asks for: a path and a query."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

_AUTHORITY: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*://[^/?#]*")


def split_target(target: bytes) -> tuple[str, bytes]:
    """Path, decoded, and query of a request line's target, be it a path or a whole URL."""
    if not target.startswith(b"/") and (whole := _AUTHORITY.match(target)) is not None:
        target = target[whole.end() :]
        if not target.startswith(b"/"):
            target = b"/" + target
    path, _, query = target.partition(b"#")[0].partition(b"?")
    return decoded_path(path), query


def decoded_path(path: bytes) -> str:
    """All but the slashes: one that was written as `%2F` is part of a name, and does not divide it."""
    if b"%" in path:
        path = unquote_to_bytes(path.replace(b"%2F", b"%252F").replace(b"%2f", b"%252f"))
    return path.decode("utf-8", "replace")
