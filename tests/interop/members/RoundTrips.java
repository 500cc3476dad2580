import java.io.File;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Round trips through listeners on Apache Kafka's own clients since 2.0 (see README.md). */
public class RoundTrips {
    static final long TIMEOUT_MS = 60000;
    static final String MODULE = "org.apache.kafka.common.security.%s.%sLoginModule required username=\"%s\" password=\"%s\";";

    public static void main(String[] args) throws Exception {
        for (String listener : Arrays.copyOfRange(args, 3, args.length)) {
            String[] words = listener.split(",", -1);
            String value;
            try {
                value = roundTrip(words[2], settings(args[0], args[1], args[2], words), words[0]);
            } catch (Exception failure) {
                value = failure.toString();
            }
            System.out.println(value);
        }
    }

    static Properties settings(String folder, String user, String password, String[] words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[1]);
        settings.put("security.protocol", words[3]);
        if (words[3].endsWith("SSL")) {
            putStore(settings, "ssl.truststore", new File(folder, "authority.p12"));
        }
        if (!words[4].isEmpty()) {
            boolean plain = words[4].equals("PLAIN");
            settings.put("sasl.mechanism", words[4]);
            settings.put("sasl.jaas.config",
                String.format(MODULE, plain ? "plain" : "scram", plain ? "Plain" : "Scram", user, password));
        }
        if (!words[5].isEmpty()) {
            putStore(settings, "ssl.keystore", new File(folder, words[5].replace(".pem", ".p12")));
        }
        for (String kind : new String[] {"key", "value"}) {
            settings.put(kind + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put(kind + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return settings;
    }

    static void putStore(Properties settings, String name, File file) {
        settings.put(name + ".type", "PKCS12");
        settings.put(name + ".location", file.getPath());
        settings.put(name + ".password", "changeit");
    }

    static String roundTrip(String topic, Properties settings, String value) throws Exception {
        RecordMetadata sent;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            sent = producer.send(new ProducerRecord<>(topic, value)).get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
        TopicPartition partition = new TopicPartition(topic, sent.partition());
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(Collections.singletonList(partition));
            consumer.seek(partition, sent.offset());
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(TIMEOUT_MS));
            return records.isEmpty() ? "nothing was read" : records.records(partition).get(0).value();
        }
    }
}
