import billing


def test_bad_orders_are_put_aside(ottla_broker, capsys):
    ottla_broker.send("orders", '{"customer": "anna", "amount": 4}')
    ottla_broker.send("orders", "{broken")
    ottla_broker.send("orders", '{"amount": 5}', key="ben", headers={"trace": "17"})
    ottla_broker.send("orders", '{"customer": "cleo", "amount": 6}')
    billing.run(ottla_broker.bootstrap_servers, 4)
    assert capsys.readouterr().out == "billed anna: 4.00\nbilled cleo: 6.00\n"
    broken, missing = ottla_broker.records("orders.dead")
    assert broken.value == b"{broken"
    assert (missing.key, dict(missing.headers)["trace"]) == (b"ben", b"17")
    assert dict(missing.headers)["error"] == b"KeyError('customer')"
    assert dict(missing.headers)["from"] == b"orders-0 @ 2"
    assert ottla_broker.group("billing").lag == {("orders", 0): 0}
