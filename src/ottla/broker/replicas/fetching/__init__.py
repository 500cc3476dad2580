"""Replica fetchers: how followers copy from their leaders."""
