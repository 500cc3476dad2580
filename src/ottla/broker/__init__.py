"""The broker: listeners, request dispatch, handlers, and the shells around the pure state machines."""
