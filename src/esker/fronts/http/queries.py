"""Parameters of a query: each knows what it takes, how it is read, and how the document shows it.

A value that is out of bounds is brought into them (`Clamped`), or refused (`Number`, `Choice` and the others). One that
is empty is as good as none, but for a `Guard`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from esker.fronts.http.calls import NUMBER_DIGITS_MAX, Call
from esker.fronts.http.errors import invalid
from esker.fronts.http.schemas import Schema, whole

_SHOWN_CHARS: Final = 40  # of a value that is refused


class Parameter(msgspec.Struct, frozen=True):
    """A text of any kind, unless a subclass says otherwise."""

    name: str
    says: str

    @property
    def schema(self) -> Schema:
        return {"type": "string"}

    @property
    def shown(self) -> Schema:
        """As an OpenAPI parameter."""
        return {"name": self.name, "in": "query", "description": self.says, "schema": self.schema}


class Switch(Parameter, frozen=True):
    """true, 1, false or 0. Anything else means the default, so the document cannot call it a boolean."""

    default: bool

    @property
    def schema(self) -> Schema:
        return {"type": "string", "default": str(self.default).lower(), "examples": [str(not self.default).lower()]}

    @property
    def shown(self) -> Schema:
        more = "true or 1, false or 0; anything else means the default"
        return {**super().shown, "description": f"{self.says} ({more})"}

    def read(self, call: Call) -> bool:
        return call.switch(self.name, self.default)


class Guard(Parameter, frozen=True):
    """A switch that keeps a call from doing harm: anything else is refused."""

    @property
    def schema(self) -> Schema:
        return {"type": "string", "enum": ["true", "1", "false", "0"], "default": "false"}

    def read(self, call: Call) -> bool:
        return call.guard(self.name)


class Clamped(Parameter, frozen=True):
    """A whole number that is brought into its bounds. `default` None: the endpoint has one of its own."""

    least: int
    most: int
    default: int | None = None

    @property
    def schema(self) -> Schema:
        largest = 10**NUMBER_DIGITS_MAX - 1
        told: Schema = {"type": "integer", "minimum": -largest, "maximum": largest}
        return told if self.default is None else {**told, "default": self.default}

    @property
    def shown(self) -> Schema:
        described = f"{self.says} (brought into {self.least} to {self.most})"
        return {**super().shown, "description": described, "allowEmptyValue": True}

    def read(self, call: Call, default: int | None = None) -> int:
        usual = self.default if default is None else default
        assert usual is not None, f"{self.name} has no default"
        return call.number(self.name, usual, self.least, self.most)


class Number(Parameter, frozen=True):
    """A whole number within its bounds."""

    least: int
    most: int
    default: int | None = None

    @property
    def schema(self) -> Schema:
        told: Schema = {"type": "integer", "minimum": self.least, "maximum": self.most}
        return told if self.default is None else {**told, "default": self.default}

    @property
    def shown(self) -> Schema:
        return {**super().shown, "allowEmptyValue": True}

    def read(self, call: Call) -> int | None:
        """Raises 400."""
        text = call.query.get(self.name)
        if not text:
            return self.default
        digits = text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX
        if not (digits and self.least <= int(text) <= self.most):
            shown = text[:_SHOWN_CHARS]
            raise invalid(f"{self.name} is {shown!r}; expected a number from {self.least} to {self.most}")
        return int(text)


class Choice(Parameter, frozen=True):
    """One of some words."""

    words: tuple[str, ...]
    default: str | None = None

    @property
    def schema(self) -> Schema:
        told: Schema = {"type": "string", "enum": list(self.words)}
        return told if self.default is None else {**told, "default": self.default}

    @property
    def shown(self) -> Schema:
        return {**super().shown, "allowEmptyValue": True}

    def read(self, call: Call) -> str | None:
        """Raises 400."""
        value = call.query.get(self.name) or self.default
        if value is not None and value not in self.words:
            raise invalid(f"{self.name} is {value[:_SHOWN_CHARS]!r}; expected {' or '.join(self.words)}")
        return value


class Words(Parameter, frozen=True):
    """Words with commas between them: each one of `words`, once; or texts of a pattern, which the endpoint checks."""

    words: tuple[str, ...] = ()
    pattern: str = ""
    most: int = 0
    empty: bool = True  # an empty text is as good as none

    @property
    def schema(self) -> Schema:
        told: Schema = {"type": "array", "minItems": 1}
        if self.words:
            told |= {"items": {"type": "string", "enum": list(self.words)}, "uniqueItems": True}
        else:
            told |= {"items": {"type": "string", "pattern": whole(self.pattern)}}
        if self.most:
            told["maxItems"] = self.most
        return told

    @property
    def shown(self) -> Schema:
        return {**super().shown, "style": "form", "explode": False, "allowEmptyValue": self.empty}

    def read(self, call: Call) -> list[str] | None:
        """None: it is not there. Raises 400."""
        told = call.query.get(self.name)
        if told is None or (self.empty and not told):
            return None
        names = told.split(",", self.most or -1)
        if self.most and len(names) > self.most:
            raise invalid(f"{self.name} has more than {self.most} names")
        if not self.words:
            return names
        for name in names:
            if name not in self.words:
                raise invalid(f"{self.name}: there is no {name[:64]!r}; there are {', '.join(self.words)}")
        if len(set(names)) < len(names):
            raise invalid(f"{self.name}: {told[:200]!r} names one twice")
        return names


class Matched(Parameter, frozen=True):
    """A text that matches a pattern, or is no longer than so many bytes. `required`: an empty one is refused too."""

    pattern: str = ""
    bytes_max: int = 0
    bytes_min: int = 0
    required: bool = False
    form: str = ""  # a name for what the pattern alone does not say

    @property
    def schema(self) -> Schema:
        told: Schema = {"type": "string"}
        if self.pattern:
            told["pattern"] = whole(self.pattern)
        if self.bytes_max:
            told["maxLength"] = self.bytes_max
        if self.bytes_min:
            told["minLength"] = self.bytes_min
        return {**told, "format": self.form} if self.form else told

    @property
    def shown(self) -> Schema:
        told = super().shown
        if self.bytes_max:
            told["description"] = f"{self.says} (at most {self.bytes_max} bytes as UTF-8)"
        return {**told, "required": True} if self.required else {**told, "allowEmptyValue": True}

    def read(self, call: Call) -> str:
        return call.query.get(self.name, "")
