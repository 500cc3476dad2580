"""The cluster: its image, placement of replicas, what may be done to topics. Pure."""
