"""The replicas that a broker holds: roles, high watermarks, and the requests that wait for them."""
