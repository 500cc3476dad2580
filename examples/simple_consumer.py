"""Read a partition by hand: find its leader, look up where it begins, fetch, and keep one's own offset.

    python examples/simple_consumer.py localhost:9092 clicks 0

Nothing is committed and no group is joined; start it as often as you like, it reads the same records.
"""

from __future__ import annotations

import sys

from ottla.client.errors import ClientError
from ottla.client.model import EARLIEST, LATEST
from ottla.client.sync import SimpleConsumer


def main(servers: str, topic: str, partition: int) -> None:
    """Print every record that the partition holds now."""
    with SimpleConsumer(bootstrap_servers=servers) as consumer:
        found = consumer.find_leader(topic, partition)
        print(f"{topic}-{partition} is led by {found.leader}, replicas {[node.node_id for node in found.replicas]}")
        offset = consumer.earliest_or_latest_offset(topic, partition, EARLIEST)
        end = consumer.earliest_or_latest_offset(topic, partition, LATEST)
        while offset < end:
            fetched = consumer.fetch(topic, partition, offset)
            for record in fetched.records:
                print(record.offset, record.key, record.value)
            offset = fetched.next_offset


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    except ClientError as error:
        sys.exit(str(error))
