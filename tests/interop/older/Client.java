// A producer and a consumer that compile against every Java client from 0.9 to 4.x.
//   Client bootstrap topic codec...     produces records with each codec, then reads all of the topic's partition 0,
//                                       once by itself and once as a member of a group, and prints what it read
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

public class Client {
    static final int RECORDS = 20;
    static final long DEADLINE_MS = 30000;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        for (String codec : Arrays.copyOfRange(arguments, 2, arguments.length)) {
            produce(bootstrap, topic, codec);
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, topic + "-alone")) {
            consumer.assign(Collections.singletonList(partition));
            consumer.seek(partition, 0);
            read("alone", consumer, partition);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, topic + "-group")) {
            consumer.subscribe(Collections.singletonList(topic));
            read("group", consumer, partition);
            consumer.commitSync();
            System.out.println("committed " + consumer.position(partition));
        }
    }

    static void produce(String bootstrap, String topic, String codec) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("compression.type", codec);
        properties.put("acks", "all");
        properties.put("linger.ms", "20");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            Future<RecordMetadata> last = null;
            for (int i = 0; i < RECORDS; i++) {
                byte[] key = i % 3 == 1 ? null : bytes(codec + i);
                byte[] value = i % 5 == 4 ? null : bytes(("value " + i + " ").repeat(1 + 100 * (i % 4)));
                last = producer.send(new ProducerRecord<>(topic, 0, key, value));
            }
            System.out.println("produced " + codec + " " + last.get().offset());
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        return new KafkaConsumer<>(properties);
    }

    // Until the end that the marker, a record with the key "end", shows.
    static void read(String how, KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) throws Exception {
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        long next = -1;
        while (System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
                System.out.println(how + " " + record.offset() + " " + text(record.key()) + " " + text(record.value()));
                next = record.offset() + 1;
            }
            if (next >= end(consumer, partition)) {
                return;
            }
        }
        System.out.println(how + " gave up at " + next);
        System.exit(1);
    }

    static long expected = -1;

    // How many records there are: 0.9 and 0.10.0 have no endOffsets, so the end is asked for by seeking to it.
    static long end(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) throws Exception {
        if (expected < 0 && consumer.assignment().contains(partition)) {
            long here = consumer.position(partition);
            for (Method method : KafkaConsumer.class.getMethods()) {
                if (method.getName().equals("seekToEnd")) {
                    Object argument = method.getParameterTypes()[0].isArray()
                        ? new TopicPartition[] {partition} : Collections.singletonList(partition);
                    method.invoke(consumer, argument);
                }
            }
            expected = consumer.position(partition);
            consumer.seek(partition, here);
        }
        return expected < 0 ? Long.MAX_VALUE : expected;
    }

    @SuppressWarnings("unchecked")
    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        try {
            return (ConsumerRecords<byte[], byte[]>) KafkaConsumer.class.getMethod("poll", Duration.class)
                .invoke(consumer, Duration.ofMillis(500));
        } catch (NoSuchMethodException older) {
            return (ConsumerRecords<byte[], byte[]>) KafkaConsumer.class.getMethod("poll", long.class)
                .invoke(consumer, 500L);
        }
    }

    static String text(byte[] bytes) {
        return bytes == null ? "-" : bytes.length + ":" + Arrays.hashCode(bytes);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
