// The clients of 0.8.2: the Java producer, the Scala producer, and the simple consumer (Fetch, ListOffsets and Metadata
// in version 0).
//   Client082 host port topic codec...   as Client.java
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndOffset;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

public class Client082 {
    static final int RECORDS = 20;

    public static void main(String[] arguments) throws Exception {
        String host = arguments[0];
        int port = Integer.parseInt(arguments[1]);
        String topic = arguments[2];
        for (String codec : Arrays.copyOfRange(arguments, 3, arguments.length)) {
            produce(host + ":" + port, topic, codec);
            produceByScala(host + ":" + port, topic, codec);
        }
        SimpleConsumer consumer = new SimpleConsumer(host, port, 10000, 1 << 20, "simple");
        int leader = consumer.send(new TopicMetadataRequest(Collections.singletonList(topic))).topicsMetadata().get(0)
            .partitionsMetadata().get(0).leader().id();
        System.out.println("leader " + leader);
        long first = offset(consumer, topic, kafka.api.OffsetRequest.EarliestTime());
        long end = offset(consumer, topic, kafka.api.OffsetRequest.LatestTime());
        long next = first;
        while (next < end) {
            FetchResponse response = consumer.fetch(new FetchRequestBuilder().clientId("simple").maxWait(500).minBytes(1)
                .addFetch(topic, 0, next, 1 << 16).build());
            if (response.hasError()) {
                System.out.println("error " + response.errorCode(topic, 0));
                System.exit(1);
            }
            for (MessageAndOffset message : response.messageSet(topic, 0)) {
                if (message.offset() < next) {
                    continue; // a compressed set is sent whole
                }
                System.out.println("alone " + message.offset() + " " + text(message.message().key()) + " "
                    + text(message.message().payload()));
                next = message.nextOffset();
            }
        }
        consumer.close();
    }

    static long offset(SimpleConsumer consumer, String topic, long time) {
        Map<TopicAndPartition, PartitionOffsetRequestInfo> wanted = new HashMap<>();
        wanted.put(new TopicAndPartition(topic, 0), new PartitionOffsetRequestInfo(time, 1));
        return consumer.getOffsetsBefore(new OffsetRequest(wanted, kafka.api.OffsetRequest.CurrentVersion(), "simple"))
            .offsets(topic, 0)[0];
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
                last = producer.send(new ProducerRecord<>(topic, 0, key(codec, i), value(i)));
            }
            System.out.println("produced " + codec + " " + last.get().offset());
        }
    }

    static void produceByScala(String brokers, String topic, String codec) {
        Properties properties = new Properties();
        properties.put("metadata.broker.list", brokers);
        properties.put("compression.codec", codec);
        properties.put("request.required.acks", "1");
        properties.put("message.send.max.retries", "0");
        Producer<byte[], byte[]> producer = new Producer<>(new ProducerConfig(properties));
        java.util.List<KeyedMessage<byte[], byte[]>> messages = new java.util.ArrayList<>();
        for (int i = 0; i < RECORDS; i++) {
            messages.add(new KeyedMessage<>(topic, key(codec, i), value(i)));
        }
        producer.send(messages);
        producer.close();
        System.out.println("produced by Scala " + codec);
    }

    static byte[] key(String codec, int i) {
        return i % 3 == 1 ? null : (codec + i).getBytes(StandardCharsets.UTF_8);
    }

    static byte[] value(int i) {
        return i % 5 == 4 ? null : ("value " + i + " ").repeat(1 + 100 * (i % 4)).getBytes(StandardCharsets.UTF_8);
    }

    static String text(ByteBuffer buffer) {
        if (buffer == null) {
            return "-";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes.length + ":" + Arrays.hashCode(bytes);
    }
}
