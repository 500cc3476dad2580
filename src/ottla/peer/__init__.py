"""Speaking to a broker: connections, versions, metadata, bootstrap, reconnects, kinds of errors and their cures.

What clients, replica fetchers and the controller's channels to brokers share. In these modules a client is whoever
opened the connection: an application, or another broker.
"""
