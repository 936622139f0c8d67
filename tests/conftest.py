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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios", action="store_true", help="write the output of now into tests/scenarios/*.txt"
    )
