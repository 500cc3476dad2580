"""Workload profiles: a load with promises, its generator, and a checker that reads everything back.

`workload` says what a profile is, `payloads` makes its records and finds their ids again, `producing` is a producer
process, `checker` finds lost, doubled and reordered records, `result` is what a run has shown, `run` does it all.
"""
