"""What reading and writing from Spark can raise.

EskerError
└── EskerSparkError    one line that names the option, topic or file, and what to do
    ├── Unreachable    no endpoint answered in time
    ├── Refused        the broker said no; carries its status, code and detail
    └── DataLoss       records of the range are gone, and `failOnDataLoss` is true
"""

from __future__ import annotations

from collections.abc import Mapping

from esker.errors import EskerError


class EskerSparkError(EskerError):
    """A query cannot go on."""


class Unreachable(EskerSparkError):
    """No endpoint answered in time."""


class Refused(EskerSparkError):
    """The broker answered with an error."""

    def __init__(self, message: str, status: int = 0, code: str = "", detail: Mapping[str, object] | None = None):
        super().__init__(message)
        self.status = status
        self.code = code
        self.detail: Mapping[str, object] = detail or {}


class DataLoss(EskerSparkError):
    """Records that the query was to read are gone."""


def wrong_option(name: str, why: str) -> EskerSparkError:
    return EskerSparkError(f"option {name}: {why}")
