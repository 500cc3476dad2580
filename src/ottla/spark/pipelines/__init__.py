"""Pipelines on one stream of events: an online aggregation, an archive, a mirror; each runs alone too."""
