"""Settings every test shares. Fixtures live beside the tests that use them."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# A shared machine may stall one example for seconds, so time is bounded per test (pytest-timeout), not per example.
# CI draws the same examples on every run, so that a red build means a change; HYPOTHESIS_PROFILE=explore looks for new
# ones.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` has a worker for each core. Tests of one file stay together, and so do all that start Spark.

    Those come first: they are one long piece, and the others fill what room it leaves.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group("spark" if _needs_spark(item) else str(item.path)))
    items.sort(key=_needs_spark, reverse=True)


def _needs_spark(item: pytest.Item) -> bool:
    return item.path.parent.name == "spark" or item.path.name == "test_pipeline.py"
