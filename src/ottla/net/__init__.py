"""Connections, buffers and listeners, for the broker and its replica fetchers alike."""
