"""How hypothesis runs here: on a busy machine as on a quiet one, in each run with the same cases."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

PROFILE = "whatever else the machine does"

settings.register_profile(PROFILE, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def load() -> None:
    """Make it what tests have that do not say otherwise."""
    settings.load_profile(PROFILE)
