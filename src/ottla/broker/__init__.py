"""The broker: listeners, request dispatch, handlers, and the shells that host the pure machines."""
