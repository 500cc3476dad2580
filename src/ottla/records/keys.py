"""The table of keys that compaction fills and asks: compiled where that was built, in plain Python else.

`COMPILED` says which; in plain Python it is for tests, and far slower than a dict (`ottla.storage.offset_map`).
"""

from __future__ import annotations

from importlib import import_module

from ottla.records import _keys

__all__ = ["COMPILED", "digest", "put_keys", "sieve"]

put_keys, sieve, digest = _keys.put_keys, _keys.sieve, _keys.digest
COMPILED = False
try:
    _native = import_module("ottla.records._keys_native")
except ImportError:
    pass
else:
    put_keys, sieve, digest = _native.put_keys, _native.sieve, _native.digest
    COMPILED = True
