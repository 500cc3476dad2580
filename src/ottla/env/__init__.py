"""Access to the outside world: clock, randomness, disk, network, executor. Nothing else reaches it."""
