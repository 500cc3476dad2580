"""Storage: segments, indexes, producer state, leader epochs, checkpoints, retention, recovery, log directories."""
