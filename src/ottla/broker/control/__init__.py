"""The control plane of a broker: its place in the cluster, the controller's shell, what others change in the tree."""
