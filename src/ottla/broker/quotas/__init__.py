"""Limits on what the broker does for others."""
