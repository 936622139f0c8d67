"""Where a list goes on: the last name of a page, wrapped so that clients do not take it apart."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode

import msgspec

from esker.fronts.http.errors import invalid


class _Cursor(msgspec.Struct, forbid_unknown_fields=True):
    last: str


_decoder = msgspec.json.Decoder(_Cursor)


def to_cursor(last: bytes) -> str:
    return b64encode(msgspec.json.encode(_Cursor(last.decode()))).decode()


def from_cursor(text: str | None) -> bytes:
    """Raises 400 when it is not one that `to_cursor` made. A `+` that a query turned into a space is mended."""
    if not text:
        return b""
    try:
        return _decoder.decode(b64decode(text.replace(" ", "+"), validate=True)).last.encode()
    except (binascii.Error, msgspec.MsgspecError, ValueError) as error:
        raise invalid(f"cursor {text[:64]!r} is not one that a list returned") from error
