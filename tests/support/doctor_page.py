"""docs/doctor.md, made from the kinds of faults that the doctor knows."""

from __future__ import annotations

from ottla.ops.doctor.faults import FaultKind
from ottla.ops.health.findings import HealthKind, HealthLevel

_INTRODUCTION = """\
`ottla doctor` looks at a cluster as a client meets it, names each fault, and says what cures it. It works with clusters
of ottla and of Apache Kafka, and changes nothing.

```console
$ ottla doctor
FAULT               WHERE…
connection-refused  127.0.0.1:9092  cannot connect to 127.0.0.1:9092 (Connection refused). Start the broker, or…
ottla doctor: no broker can be reached, so that topics and groups were not looked at
$ ottla serve --port 9092 &
ottla 0.1.0 ready in …
durability: …
$ ottla doctor --data ottla-data
no faults found
```

- The exit code is 0 where no fault is found, 1 where there are faults, 2 where it could not look. With `--json` each
  fault is an object with `fault`, `where`, `what` and `cure`, and nothing is written where there is none.
- `--group NAME` looks at these groups only. Without it the doctor looks at all of them.
- `--data DIRECTORY` looks at a log directory of a broker on this machine, too.
- Where a group has records to read or rebalances, or replicas lag, the doctor looks again after `--interval` seconds
  (10): what did not move on in between is a fault.
- Each bootstrap server is asked by itself, and each broker at the address that it advertises.
"""
_OF_HEALTH = """\

## Of the cluster's health

These are the warnings and critical findings of `ottla cluster health`, with the same names and cures. The guide says
more about each. Notices do not count.

"""
_NOT_SEEN = """
## What it does not see

- Clocks of brokers that are behind: no response of a broker carries its time. Those that are ahead show in the records
  that brokers date: of `__consumer_offsets`, and of topics with `message.timestamp.type=LogAppendTime`.
- Disks of other machines, beyond what brokers report of their volumes.
- Members of groups with the consumer protocol (KIP-848): their state, offsets and lag are seen, their assignments and
  progress are not.
- Rebalances at brokers of Apache Kafka, which keep no record of them. A group that rebalances at both looks is seen.
"""


def doctor_page(made_by: str) -> str:
    """How it is used, and all faults."""
    rows = [f"# What is wrong: `ottla doctor`\n\n{made_by}", f"{_INTRODUCTION}\n## Faults\n"]
    rows.append("| fault | what is wrong |\n|---|---|")
    rows += [f"| `{each.slug}` | {each.summary} |" for each in FaultKind]
    rows.append(_OF_HEALTH.rstrip("\n") + "\n")
    kinds = [each for each in HealthKind if each.level > HealthLevel.NOTICE]
    rows.append(", ".join(f"[{each.slug}](operations.md#{each.slug})" for each in kinds) + ".")
    rows.append(_NOT_SEEN.rstrip("\n"))
    return "\n".join(rows) + "\n"
