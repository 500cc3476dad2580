"""A ZooKeeper server over the tree: connections, sessions, requests, four-letter words."""
