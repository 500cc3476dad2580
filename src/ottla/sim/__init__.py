"""The simulator: consumer groups on a virtual clock, by both designs, reproducible by a seed."""
