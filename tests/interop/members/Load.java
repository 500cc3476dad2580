import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * An idempotent producer with acks=all on Apache Kafka's own client, for support/load_producers.py.
 *
 * Arguments: bootstrap servers, topic, how many partitions, milliseconds between rounds. Each round sends "java N" to
 * each partition. A line for each record: "partition offset N", or "failed" and why. The end of standard input ends it.
 */
public class Load {
    static volatile boolean asked;

    static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("client.id", "java");
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", "1");
        settings.put("delivery.timeout.ms", "120000");
        settings.put("reconnect.backoff.max.ms", "500");
        String serializer = "org.apache.kafka.common.serialization.StringSerializer";
        settings.put("key.serializer", serializer);
        settings.put("value.serializer", serializer);
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        long pauseMs = Long.parseLong(args[3]);
        Thread waiting = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException gone) {
                // The end of standard input asks for the end, however it comes.
            }
            asked = true;
        });
        waiting.setDaemon(true);
        waiting.start();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (long number = 0; !asked; number++) {
                long sent = number;
                for (int partition = 0; partition < partitions; partition++) {
                    ProducerRecord<String, String> record =
                        new ProducerRecord<>(topic, partition, null, "java " + sent);
                    producer.send(record, (metadata, failure) -> tell(failure == null
                        ? metadata.partition() + " " + metadata.offset() + " " + sent
                        : "failed " + failure));
                }
                Thread.sleep(pauseMs);
            }
            producer.flush();
        }
    }
}
