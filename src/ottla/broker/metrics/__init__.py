"""The broker's metrics: plain counters of its parts, read at each scrape."""
