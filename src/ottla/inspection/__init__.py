"""Inspection of log directories from outside: their contents, damage, and its repair. Behind `ottla log`."""
