"""Random cases that are the same in each run."""

from support import random_cases

random_cases.load()
