"""Names that fit a path: 1 to 255 bytes, an ASCII letter or digit first, then also `. _ : -` (and `>` for routers).

The engine takes any bytes as a name, and the Redis front lets clients use them. A name that does not fit here cannot
be reached over HTTP and is left out of its lists.
"""

from __future__ import annotations

import re
from typing import Final

from esker.fronts.http.errors import invalid

TOPIC_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,254}"
ROUTER_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:>\-]{0,254}"
_TOPIC = re.compile(TOPIC_PATTERN)
_ROUTER = re.compile(ROUTER_PATTERN)
_TOPIC_BYTES = re.compile(_TOPIC.pattern.encode())


def topic_name(text: str, what: str = "topic") -> bytes:
    """Raises 400 when it is none."""
    if _TOPIC.fullmatch(text) is None:
        raise invalid(
            f"{what} {text[:64]!r} is no topic name: 1 to 255 ASCII letters, digits or . _ : -, a letter or digit first"
        )
    return text.encode()


def router_name(text: str) -> bytes:
    """Raises 400 when it is none."""
    if _ROUTER.fullmatch(text) is None:
        raise invalid(
            f"{text[:64]!r} is no router name: 1 to 255 ASCII letters, digits or . _ : - >, a letter or digit first"
        )
    return text.encode()


def fits(name: bytes) -> bool:
    """Whether a topic of the engine can be named in a path."""
    return _TOPIC_BYTES.fullmatch(name) is not None
