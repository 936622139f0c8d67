"""Who may run a command: every command, and every subcommand, stands under one rule.

A rule is the scopes that a key needs and what of the node the command reaches. A key with prefixes reaches the topics
whose names begin so; for such a key everything else is as if it were not there.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from esker.fronts.access import Scope


class Reach(Enum):
    CONNECTION = auto()  # nothing but the connection itself, or what is the same for everyone
    NAMES = auto()  # the topics that the arguments name: refused unless the key reaches all of them
    JOBS = auto()  # the topics of the jobs whose ids are among the arguments: a job of another topic is no job
    SEEN = auto()  # whatever the key reaches: the handler leaves out the rest
    NODE = auto()  # all of the node: only for a key without prefixes


class Rule(NamedTuple):
    reach: Reach
    needs: Scope = Scope.NONE


FREE: Final = Rule(Reach.CONNECTION)
READS: Final = Rule(Reach.NAMES, Scope.READ)
WRITES: Final = Rule(Reach.NAMES, Scope.WRITE)
DELETES: Final = Rule(Reach.NAMES, Scope.DELETE)
MANAGES: Final = Rule(Reach.NAMES, Scope.ADMIN)
TAKES: Final = Rule(Reach.NAMES, Scope.READ | Scope.WRITE)
READS_JOBS: Final = Rule(Reach.JOBS, Scope.READ)
WRITES_JOBS: Final = Rule(Reach.JOBS, Scope.WRITE)
DELETES_JOBS: Final = Rule(Reach.JOBS, Scope.DELETE)
LISTS: Final = Rule(Reach.SEEN, Scope.READ)
OWN_CLIENTS: Final = Rule(Reach.SEEN)
OPERATES: Final = Rule(Reach.NODE, Scope.ADMIN)
