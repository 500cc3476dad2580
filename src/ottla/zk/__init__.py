"""ZooKeeper: Kafka's znodes, the tree they live in, where it is kept on disk, and the client of it."""
