import json

from ottla.client.sync import Consumer, Producer


def bill(order):
    """What the program is for."""
    return f"billed {order['customer']}: {order['amount']:.2f}"


def run(servers, most_records):
    """Bill the orders; commit what was billed, or put aside for a human to look at."""
    settings = {"group_id": "billing", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with (
        Producer(bootstrap_servers=servers) as dead_letters,
        Consumer(bootstrap_servers=servers, **settings) as consumer,
    ):
        consumer.subscribe(["orders"])
        handled = 0
        while handled < most_records:
            for record in consumer.poll(500):
                try:
                    print(bill(json.loads(record.value)))
                except Exception as error:
                    place = f"{record.topic}-{record.partition} @ {record.offset}"
                    why = [("error", repr(error).encode()), ("from", place.encode())]
                    letter = dead_letters.send("orders.dead", record.value, record.key, headers=[*record.headers, *why])
                    letter.result()  # it is written before the offset behind it is committed
                handled += 1
            consumer.commit()
