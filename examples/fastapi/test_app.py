import time

from fastapi.testclient import TestClient


def test_orders_are_counted(ottla_broker):
    from app import app

    with TestClient(app) as client:
        assert client.post("/orders/anna", params={"item": "apples"}).json() == {"partition": 0, "offset": 0}
        client.post("/orders/anna", params={"item": "pears"})
        ottla_broker.wait_for_group("totals", members=1)
        deadline = time.monotonic() + 30
        while client.get("/totals").json() != {"anna": 2} and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.get("/totals").json() == {"anna": 2}
    assert [record.value for record in ottla_broker.records("orders")] == [b"apples", b"pears"]
