"""The two designs of groups, ZooKeeper and the coordinator, played through the same churn in virtual time."""
