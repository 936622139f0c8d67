"""Small pieces of JSON Schema."""

from __future__ import annotations

Schema = dict[str, object]


def whole(pattern: str) -> str:
    """A pattern of a whole text, as JSON Schema wants it: there, one may match anywhere."""
    return f"^(?:{pattern})$" if "|" in pattern else f"^{pattern}$"
