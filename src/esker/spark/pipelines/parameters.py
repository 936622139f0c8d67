"""Parameters of pipelines: texts that people give, checked and typed in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from esker.errors import SettingsError

Value = str | int | float | bool

_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")


@dataclass(frozen=True, slots=True)
class Parameter:
    """`default` None: absent unless given. `low` and `high` bound numbers, both included."""

    name: str
    type: type[str] | type[int] | type[float] | type[bool]
    help: str
    default: Value | None = None
    required: bool = False
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    @property
    def kind(self) -> str:
        """What a value looks like, for people."""
        if self.choices:
            return "|".join(self.choices)
        return {str: "text", int: "integer", float: "number", bool: "true|false"}[self.type]

    def parse(self, text: str) -> Value:
        """Raises ValueError that says what was expected."""
        if self.choices and text not in self.choices:
            raise ValueError(f"expected {' or '.join(self.choices)}")
        if self.type is bool:
            word = text.strip().lower()
            if word not in _YES + _NO:
                raise ValueError("expected true or false")
            return word in _YES
        if self.type is str:
            if not text.strip():
                raise ValueError("expected some text")
            return text
        return self._number(text)

    def _number(self, text: str) -> Value:
        number: int | float
        try:
            number = int(text) if self.type is int else float(text)
        except ValueError:
            raise ValueError(f"expected {'a whole number' if self.type is int else 'a number'}") from None
        if not math.isfinite(number):
            raise ValueError("expected a finite number")
        if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
            low = "" if self.low is None else f" from {self.low:g}"
            high = "" if self.high is None else f" up to {self.high:g}"
            raise ValueError(f"expected a number{low}{high}")
        return number


@dataclass(frozen=True, slots=True)
class Family:
    """Parameters of the form `name.part=text`. `parts` empty: any part."""

    name: str
    help: str
    parts: tuple[str, ...] = ()


class Values:
    """Checked values by name; the accessors give them their types."""

    __slots__ = ("_families", "_single")

    def __init__(self, single: Mapping[str, Value], families: Mapping[str, Mapping[str, str]]) -> None:
        self._single = dict(single)
        self._families = {name: dict(parts) for name, parts in families.items()}

    def text(self, name: str) -> str:
        return str(self._single[name])

    def optional(self, name: str) -> str | None:
        found = self._single.get(name)
        return None if found is None else str(found)

    def integer(self, name: str) -> int:
        return int(self._single[name])

    def number(self, name: str) -> float:
        return float(self._single[name])

    def switch(self, name: str) -> bool:
        return bool(self._single[name])

    def family(self, name: str) -> dict[str, str]:
        return dict(self._families.get(name, {}))

    def everything(self) -> dict[str, Value]:
        """Flat, as they were given, defaults included: for identities and machine-readable results."""
        parts = {f"{name}.{part}": text for name, family in self._families.items() for part, text in family.items()}
        return {**self._single, **parts}


def read_values(
    whose: str, parameters: Sequence[Parameter], families: Sequence[Family], given: Mapping[str, str]
) -> Values:
    """Raises SettingsError that names the parameter, the value, and what was expected."""
    known = {parameter.name: parameter for parameter in parameters}
    by_family = {family.name: family for family in families}
    single: dict[str, Value] = {p.name: p.default for p in parameters if p.default is not None}
    parts: dict[str, dict[str, str]] = {family.name: {} for family in families}
    for name, text in given.items():
        head, dot, part = name.partition(".")
        if name in known:
            try:
                single[name] = known[name].parse(text)
            except ValueError as error:
                raise SettingsError(f"{whose}: {name} cannot be {text!r}: {error}") from error
        elif dot and head in by_family and part:
            _check_part(whose, by_family[head], part, text)
            parts[head][part] = text
        else:
            raise SettingsError(f"{whose}: unknown parameter {name!r}; {_nearest(name, known, families)}")
    missing = [p.name for p in parameters if p.required and p.name not in single]
    if missing:
        raise SettingsError(f"{whose} needs {', '.join(f'--set {name}=…' for name in missing)}")
    return Values(single, parts)


def _check_part(whose: str, family: Family, part: str, text: str) -> None:
    if family.parts and part not in family.parts:
        near = get_close_matches(part, family.parts, 1)
        hint = f"did you mean {family.name}.{near[0]}?" if near else f"there are {', '.join(family.parts)}"
        raise SettingsError(f"{whose}: unknown parameter '{family.name}.{part}'; {hint}")
    if not text.strip():
        raise SettingsError(f"{whose}: {family.name}.{part} is empty")


def _nearest(name: str, known: Mapping[str, Parameter], families: Sequence[Family]) -> str:
    whole = [*known, *(f"{family.name}.{part}" for family in families for part in family.parts)]
    near = get_close_matches(name, whole, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join([*known, *(f'{family.name}.*' for family in families)])}"
