"""Plans of reassignments: which replicas go where, and which one is to lead. Pure.

`planner.plan` carries out what a goal demands (`required`): brokers that are emptied, other replication factors, racks.
Then it evens bytes and replicas out with as few bytes as it can (`evenness`), and leaders by the order of replicas
alone, which moves nothing (`leaders`). `batches` divides the moves into steps with a limit of concurrent ones. The
measures are those of Cruise Control's goals (rack awareness, disk usage, replica and leader distribution).
"""
