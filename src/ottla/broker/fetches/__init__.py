"""A fetch in work: what it asks for, the reading of partitions, the wait for more, and the response."""
