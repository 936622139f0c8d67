"""Which tags are meant: the `match` of a deletion and the `filter` of a router."""

from __future__ import annotations

from typing import NamedTuple

from esker.engine import limits
from esker.fronts.http.bodies import Selector
from esker.fronts.http.errors import invalid


class Tags(NamedTuple):
    """The tag itself, or with `prefix` every tag that begins so."""

    tag: bytes
    prefix: bool


def to_tags(selector: Selector, field: str) -> Tags:
    """Reads `["tag", "Eq", t]`, `["tag", "Glob", "t*"]`, `"t"` and `"t*"`. Raises 400."""
    if isinstance(selector, str):
        operator, text = ("Glob", selector) if selector.endswith("*") else ("Eq", selector)
    elif len(selector) == 3 and selector[0] == "tag" and selector[1] in ("Eq", "Glob"):
        operator, text = selector[1], selector[2]
        if operator == "Glob" and (not text.endswith("*") or text.count("*") > 1):
            raise invalid(f"{field} {text[:64]!r} must end with its only *: other patterns are not supported")
    else:
        raise invalid(f'{field} must be ["tag", "Eq", value], ["tag", "Glob", "prefix*"] or a text')
    prefix = operator == "Glob"
    tag = encoded(text.removesuffix("*") if prefix else text, field, limits.TAG_BYTES_MAX)
    return Tags(tag, prefix)


def from_tags(tag: bytes | None, prefix: bool) -> list[str] | None:
    if tag is None:
        return None
    text = tag.decode("utf-8", "backslashreplace")
    return ["tag", "Glob", f"{text}*"] if prefix else ["tag", "Eq", text]


def encoded(text: str, field: str, most: int, least: int = 0) -> bytes:
    """A text as bytes within its bounds. Raises 400."""
    data = text.encode()
    if not least <= len(data) <= most:
        raise invalid(f"{field} has {len(data)} bytes; it must have {least} to {most}")
    return data
