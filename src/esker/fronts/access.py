"""Who may speak: the passwords of a front.

Without a password everyone may (the node refuses to listen beyond loopback then). With some, any of them opens the
door. Comparison takes the same time for every wrong password.
"""

from __future__ import annotations

from collections.abc import Iterable
from hmac import compare_digest
from typing import Final

DEFAULT_USER: Final = b"default"


class Access:
    __slots__ = ("_passwords",)

    def __init__(self, passwords: Iterable[bytes] = ()) -> None:
        self._passwords = tuple(password for password in passwords if password)

    @property
    def required(self) -> bool:
        return len(self._passwords) > 0

    @property
    def shown(self) -> str:
        """The password for those who are inside already, as Redis's CONFIG GET shows it."""
        return self._passwords[0].decode("utf-8", "backslashreplace") if self._passwords else ""

    def replace(self, passwords: Iterable[bytes]) -> None:
        """From now on these open the door; connections that are inside stay."""
        self._passwords = tuple(password for password in passwords if password)

    def admits(self, password: bytes, user: bytes = DEFAULT_USER) -> bool:
        matches = [compare_digest(password, known) for known in self._passwords]  # all, so that time tells nothing
        return any(matches) and user == DEFAULT_USER
