"""What tests need: disks that stay in memory, fail, or lose power, and the reference codec of the wire format."""
