package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class OrdersTest {
    private static TestBroker broker;

    @BeforeAll
    static void startBroker() {
        broker = new TestBroker("--topic", "orders:3");
    }

    @AfterAll
    static void stopBroker() {
        broker.close();
    }

    @Test
    void ordersAreBilledOnce() {
        Orders orders = new Orders(broker.bootstrapServers());
        orders.send(Map.of("anna", "4 apples", "dora", "2 pears"));
        assertEquals(Set.of("4 apples", "2 pears"), Set.copyOf(orders.bill("billing", 2)));

        orders.send(Map.of("anna", "1 plum"));
        assertEquals(List.of("1 plum"), orders.bill("billing", 1));
    }
}
