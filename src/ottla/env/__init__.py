"""The only door to the outside: clock, randomness, disk, network, executor."""
