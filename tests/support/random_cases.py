"""How hypothesis runs here: on a busy machine as on a quiet one, so nothing of it depends on time."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

PROFILE = "whatever else the machine does"

settings.register_profile(PROFILE, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def load() -> None:
    """Make it what tests have that do not say otherwise."""
    settings.load_profile(PROFILE)
