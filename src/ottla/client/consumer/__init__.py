"""The consumer: subscription and positions, prefetching, and group membership."""
