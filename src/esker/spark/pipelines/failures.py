"""Errors from inside Spark, in one line.

What went wrong in a task reaches the driver wrapped in a Java exception that quotes a Python traceback. The line that
helps is our own error in there, or Spark's own first sentence.
"""

from __future__ import annotations

import re
from typing import Final

# "esker.spark.client.EskerSparkError: topic 'x' ..." as a traceback's last line shows it
_OURS: Final = re.compile(r"^\s*(?:PySparkRuntimeError: |.*?\()?esker\.[\w.]+: (?P<what>.+?)\s*$", re.MULTILINE)
_SPARK: Final = re.compile(r"\[(?P<condition>[A-Z][A-Z0-9_.]+)\] (?P<what>.+)")
_PYTHON: Final = re.compile(r"^(?:[\w.]+(?:Error|Exception|Missing)): (?P<what>.+)$", re.MULTILINE)
_LONGEST: Final = 600


def in_one_line(error: BaseException) -> str:
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return _cut(ours[-1])
    spark = _SPARK.search(text)
    if spark is not None:
        condition, what = spark["condition"], spark["what"]
        inner = _PYTHON.findall(text) if "PYTHON" in condition or "STREAM_FAILED" in condition else []
        return _cut(inner[-1] if inner else what)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return _cut(f"{type(error).__name__}: {first}" if first else type(error).__name__)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
