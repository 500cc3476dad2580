"""The controller's channels: control requests to the other brokers, an ordered queue for each."""
