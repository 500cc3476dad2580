"""Encoded Metadata responses, cached until the cluster changes."""

from __future__ import annotations

#: Most responses cached; their total size is limited, too: a request may name a million topics.
CACHED_ANSWERS = 256
CACHED_BYTES = 8 * 1024 * 1024


class MetadataCache:
    """Encoded responses, dropped whenever the cluster image changes."""

    __slots__ = ("_answers", "_bytes", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._answers: dict[object, bytes] = {}
        self._bytes = 0

    def get(self, image_version: int, key: object) -> bytes | None:
        """The cached body for `key` made from this version of the image, if any."""
        if image_version != self._version:
            self._answers.clear()
            self._bytes = 0
            self._version = image_version
        return self._answers.get(key)

    def put(self, image_version: int, key: object, body: bytes) -> None:
        """Cache a body, unless it was made from an older image or the cache is full."""
        size = self._bytes + len(body)
        if image_version == self._version and len(self._answers) < CACHED_ANSWERS and size <= CACHED_BYTES:
            self._answers[key] = body
            self._bytes = size
