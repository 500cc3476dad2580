"""The simulator: an event loop, processes, a ZooKeeper and consumer groups in virtual time."""
