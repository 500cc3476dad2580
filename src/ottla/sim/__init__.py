"""The simulator: ottla's state machines on a virtual clock and an unreliable network, reproducible by a seed."""
