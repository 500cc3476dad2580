import java.time.Duration;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/** A member of a consumer group on Apache Kafka's own client, in the tests' line protocol (see README.md). */
public class Member {
    static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    static volatile boolean asked;
    static boolean severalTopics;

    static synchronized void tell(String event, String more) {
        java.time.Instant now = java.time.Instant.now();
        double at = now.getEpochSecond() + now.getNano() / 1e9;
        System.out.printf(java.util.Locale.ROOT, "{\"event\": \"%s\", \"at\": %.6f%s}%n", event, at, more);
        System.out.flush();
    }

    static void tellPartitions(String event, Collection<TopicPartition> partitions) {
        String told = partitions.stream()
            .sorted(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition))
            .map(one -> severalTopics ? "\"" + one + "\"" : String.valueOf(one.partition()))
            .collect(Collectors.joining(", "));
        tell(event, ", \"partitions\": [" + told + "]");
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("client.id", args[3]);
        settings.put("partition.assignment.strategy",
            List.of(args[4].split(",")).stream().map(ASSIGNORS::get).collect(Collectors.joining(",")));
        settings.put("session.timeout.ms", args[5]);
        settings.put("heartbeat.interval.ms", String.valueOf(Integer.parseInt(args[5]) / 6));
        settings.put("max.poll.interval.ms", "20000");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "100");
        String deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        settings.put("key.deserializer", deserializer);
        settings.put("value.deserializer", deserializer);
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        Thread waiting = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException gone) {
                // The end of standard input asks for the end, however it comes.
            }
            asked = true;
            consumer.wakeup();
        });
        waiting.setDaemon(true);
        waiting.start();
        List<String> topics = List.of(args[2].split(","));
        severalTopics = topics.size() > 1;
        consumer.subscribe(topics, new ConsumerRebalanceListener() {
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) { tellPartitions("assigned", partitions); }
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) { tellPartitions("revoked", partitions); }
            public void onPartitionsLost(Collection<TopicPartition> partitions) { tellPartitions("lost", partitions); }
        });
        while (!asked) {
            try {
                consume(consumer);
            } catch (WakeupException wanted) {
                continue;
            }
        }
        consumer.close(Duration.ofSeconds(10));
        tell("closed", "");
    }

    static void consume(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> some = records.records(partition);
            tell("records", String.format(", \"partition\": %d, \"first\": %d, \"last\": %d, \"count\": %d",
                partition.partition(), some.get(0).offset(), some.get(some.size() - 1).offset(), some.size()));
        }
        if (records.isEmpty()) return;
        try {
            consumer.commitSync();
        } catch (WakeupException wanted) {
            consumer.commitSync();
        } catch (KafkaException refused) {
            tell("commit_failed", ", \"error\": \"" + refused.getClass().getSimpleName() + "\"");
        }
    }
}
