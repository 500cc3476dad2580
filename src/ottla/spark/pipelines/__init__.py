"""Pipelines on one stream of events: an online aggregation, an archive, a mirror. Each runs alone or with the others."""
