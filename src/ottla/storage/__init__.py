"""The log: segments, indexes, producer state, leader epochs, checkpoints, retention, recovery, log folders."""
