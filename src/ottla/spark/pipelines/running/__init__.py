"""Pipelines run, watched, stopped and looked at: what the commands of `ottla pipeline` do."""
