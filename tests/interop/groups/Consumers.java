import java.time.Duration;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/**
 * Consumers that do as they are told on standard input, and tell what their listeners are told, a line of JSON each:
 *   start NAME BOOTSTRAP GROUP TOPIC    a consumer with the range assignor; its client id is its name
 *   close NAME                          it leaves and closes
 * The end of standard input closes all. Compiles against clients from 2.0 on.
 */
public class Consumers {
    static final Map<String, Member> members = new HashMap<>();

    static synchronized void tell(String consumer, String event, String more) {
        System.out.println("{\"consumer\": \"" + consumer + "\", \"event\": \"" + event + "\"" + more + "}");
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        Scanner commands = new Scanner(System.in);
        while (commands.hasNextLine()) {
            String[] words = commands.nextLine().split(" ");
            if (words[0].equals("start")) {
                Member member = new Member(words[1], words[2], words[3], words[4]);
                members.put(words[1], member);
                member.start();
            } else if (words[0].equals("close")) {
                members.remove(words[1]).end();
            }
        }
        for (Member member : members.values()) member.end();
    }

    static class Member extends Thread implements ConsumerRebalanceListener {
        final String name;
        final String topic;
        final KafkaConsumer<byte[], byte[]> consumer;
        volatile boolean ending;

        Member(String name, String bootstrap, String group, String topic) {
            this.name = name;
            this.topic = topic;
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", group);
            settings.put("client.id", name);
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
            settings.put("session.timeout.ms", "20000");
            settings.put("heartbeat.interval.ms", "50");
            settings.put("retry.backoff.ms", "20");
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            settings.put("fetch.max.wait.ms", "50");
            String deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
            settings.put("key.deserializer", deserializer);
            settings.put("value.deserializer", deserializer);
            consumer = new KafkaConsumer<>(settings);
        }

        public void run() {
            consumer.subscribe(Collections.singletonList(topic), this);
            while (!ending) {
                try {
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(50));
                    if (!records.isEmpty()) tellPartitions("records", records.partitions());
                } catch (WakeupException wanted) {
                    continue;
                }
            }
            tell(name, "closing", "");
            consumer.close(Duration.ofSeconds(10));
            tell(name, "closed", "");
        }

        void end() {
            ending = true;
            consumer.wakeup();
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) { tellPartitions("assigned", partitions); }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) { tellPartitions("revoked", partitions); }

        public void onPartitionsLost(Collection<TopicPartition> partitions) { tellPartitions("lost", partitions); }

        void tellPartitions(String event, Collection<TopicPartition> partitions) {
            TreeSet<Integer> numbers = new TreeSet<>();
            for (TopicPartition partition : partitions) numbers.add(partition.partition());
            tell(name, event, ", \"partitions\": " + numbers);
        }
    }
}
