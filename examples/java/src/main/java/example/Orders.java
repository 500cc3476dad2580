package example;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Orders are sent to a topic, and billed by a consumer group. */
public final class Orders {
    private static final String TOPIC = "orders";
    private static final Duration BILL_TIMEOUT = Duration.ofSeconds(20);
    private static final Duration POLL_TIMEOUT = Duration.ofMillis(500);

    private final String bootstrapServers;

    public Orders(String bootstrapServers) {
        this.bootstrapServers = bootstrapServers;
    }

    /** Sends orders by customer, and returns once the broker has them. */
    public void send(Map<String, String> orders) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrapServers);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            orders.forEach((customer, order) -> producer.send(new ProducerRecord<>(TOPIC, customer, order)));
        }
    }

    /** Bills this many orders as a member of the group, and commits what was billed. */
    public List<String> bill(String group, int count) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrapServers,
                "group.id", group,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false");
        List<String> billed = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(TOPIC));
            Instant deadline = Instant.now().plus(BILL_TIMEOUT);
            while (billed.size() < count && Instant.now().isBefore(deadline)) {
                ConsumerRecords<String, String> records = consumer.poll(POLL_TIMEOUT);
                for (ConsumerRecord<String, String> record : records) {
                    billed.add(record.value());
                }
                consumer.commitSync();
            }
        }
        return billed;
    }
}
