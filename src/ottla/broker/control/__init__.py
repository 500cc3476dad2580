"""The control plane of a broker: cluster membership, the controller's shell, changes that others make to znodes."""
