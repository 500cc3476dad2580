mod test_broker;

use test_broker::TestBroker;

#[test]
fn orders_are_billed_once() {
    let broker = TestBroker::start(&["--topic", "orders:3"]);
    orders::send(&broker.bootstrap_servers, &[("anna", "4 apples"), ("dora", "2 pears")]).unwrap();
    let mut billed = orders::bill(&broker.bootstrap_servers, "billing", 2).unwrap();
    billed.sort();
    assert_eq!(billed, ["2 pears", "4 apples"]);

    orders::send(&broker.bootstrap_servers, &[("anna", "1 plum")]).unwrap();
    assert_eq!(orders::bill(&broker.bootstrap_servers, "billing", 1).unwrap(), ["1 plum"]);
}
