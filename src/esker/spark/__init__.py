"""Esker's topics, queues and history as tables of Spark.

    from esker.spark import read, session

    spark = session("report")
    orders = read(spark, "orders", endpoint="http://127.0.0.1:4000")

Importing this package needs neither Spark nor Java; what needs them says so when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.spark.errors import DataLoss, EskerSparkError
from esker.spark.session import session
from esker.spark.tables import read
from esker.spark.writing import foreach_batch, write_batch

if TYPE_CHECKING:
    from esker.spark.listener import LagListener

__all__ = ["DataLoss", "EskerSparkError", "LagListener", "foreach_batch", "read", "session", "write_batch"]


def __getattr__(name: str) -> object:
    """The listener is a class of Spark's, so that it can only be made where Spark is."""
    if name == "LagListener":
        from esker.spark.listener import LagListener

        return LagListener
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
