"""ZooKeeper: Kafka's znodes, the znode tree, its storage on disk, and the clients."""
