"""The error of this package."""

from __future__ import annotations


class SecurityError(ValueError):
    """A setting, a store or a certificate cannot be used; the message names the cause and the cure."""
