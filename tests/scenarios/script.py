"""The text of a scenario: comments, and blocks of commands with the output that is expected of them.

    # a comment
    enqueue q a priority=5
    lease q as=w1
    ----
    q#1
    q#1 a priority=5 attempt=1 until=@30s

A block is one or more commands, `----`, and the output of all of them, up to the next blank line. Running a script
gives the same text with the output that was seen, so a difference between the two is the whole report of a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

SEPARATOR = "----"


class ScenarioError(Exception):
    """A script that cannot be run: the message names the line."""


@dataclass(frozen=True, slots=True)
class Words:
    """One command: `lease q count=2` has the verb `lease`, one word `q`, and one option `count`."""

    verb: str
    plain: Sequence[str]
    options: dict[str, str]
    used: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, line: str) -> Words:
        verb, *rest = split(line)
        plain: list[str] = []
        options: dict[str, str] = {}
        for word in rest:
            name, equals, value = word.partition("=")
            if equals and name.replace("_", "").isalnum() and not name[0].isdigit():
                options[name] = unquoted(value)
            else:
                plain.append(word)
        return cls(verb, plain, options)

    def take(self, name: str, default: str | None = None) -> str | None:
        self.used.add(name)
        return self.options.get(name, default)

    def first(self) -> str:
        if not self.plain:
            raise ScenarioError(f"{self.verb} needs a name")
        return self.plain[0]

    def check_used(self) -> None:
        unknown = sorted(self.options.keys() - self.used)
        if unknown:
            raise ScenarioError(f"{self.verb} has no option {', '.join(unknown)}")


def split(line: str) -> list[str]:
    """Splits at blanks that are neither within double quotes nor within braces or brackets."""
    words: list[str] = []
    word, depth, quoted = "", 0, False
    for letter in line:
        if letter == '"':
            quoted = not quoted
        elif not quoted:
            depth += (letter in "{[") - (letter in "}]")
        if letter == " " and not quoted and not depth:
            if word:
                words.append(word)
            word = ""
        else:
            word += letter
    if quoted or depth:
        raise ScenarioError("a quote or a brace is not closed")
    return [*words, word] if word else words


def unquoted(word: str) -> str:
    return word[1:-1] if len(word) >= 2 and word[0] == word[-1] == '"' else word


def run(text: str, execute: Callable[[str], list[str]]) -> str:
    """The script with the output that its commands have now. `execute` runs one line."""
    lines = text.splitlines()
    result: list[str] = []
    at = 0
    while at < len(lines):
        if not lines[at] or lines[at].startswith("#"):
            result.append(lines[at])
            at += 1
            continue
        output: list[str] = []
        while at < len(lines) and lines[at] and lines[at] != SEPARATOR:
            result.append(lines[at])
            if not lines[at].startswith("#"):
                output += _executed(lines[at], at + 1, execute)
            at += 1
        result += [SEPARATOR, *output]
        while at < len(lines) and lines[at]:  # the old output
            at += 1
    return "\n".join(result) + "\n"


def _executed(line: str, number: int, execute: Callable[[str], list[str]]) -> list[str]:
    try:
        output = execute(line)
    except Exception as error:
        raise ScenarioError(f"line {number}: {line}: {error}") from error
    assert all(output), f"line {number}: output has a blank line, which would end the block: {output}"
    return output
