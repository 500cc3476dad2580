"""One program for each client that bench/clients.py compares, doing the same work as its users would write it."""
