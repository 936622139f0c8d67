"""Spark looks for `DefaultSource` in every package called `pyspark_<name>`: `format("esker")` needs no registration."""

from __future__ import annotations

from esker.spark.source import EskerSource as DefaultSource

__all__ = ["DefaultSource"]
