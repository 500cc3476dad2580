"""The broker's metrics, read from plain counters of its parts at each scrape, and its health."""
