"""The simulator: ottla's state machines on a virtual clock and an unreliable network; every run is reproducible by its
seed.
"""
