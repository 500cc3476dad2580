"""Fault rules of the test broker: requests that fail, wait, are dropped or cut, each declared in one line.

    with broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", nth=3):
        ...

`named` knows the names of APIs and errors, `requests` what a request names, `rules` which requests a rule applies to,
`failing` how a part of a request fails: all pure. `declared` holds the rules of a broker, and applies them.
"""
