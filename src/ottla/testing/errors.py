"""The errors of a test broker, with cause and cure."""

from __future__ import annotations


class TestBrokerError(Exception):
    """The test broker cannot do what was asked; the message says why, and what helps."""

    __test__ = False  # pytest must not take it for a test


class WaitedInVainError(AssertionError):
    """A wait of a test has ended without what was waited for; the message says what is there instead."""
