"""Random cases that do not depend on time."""

from support import random_cases

random_cases.load()
