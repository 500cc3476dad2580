"""The cluster: image, replica placement, topic rules, the controller's state machine. Pure."""
