"""Fuzzing with few examples, the same in every run; `FARM_FUZZ=long` looks further."""

import os

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("short", max_examples=150, derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile("long", max_examples=4_000, deadline=None, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("FARM_FUZZ", "short"))
