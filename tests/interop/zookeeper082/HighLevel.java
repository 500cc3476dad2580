// A member of a group on the high-level consumer of 0.8.2, which shares partitions by way of ZooKeeper.
//   HighLevel zookeeper group subscription [setting=value]...
// where subscription is topic:threads,topic:threads or white_list:pattern:threads or black_list:pattern:threads.
// One line a message: got thread topic partition offset key value. SIGTERM: it shuts down and says "closed".
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.consumer.Blacklist;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerTimeoutException;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

public class HighLevel {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("zookeeper.connect", arguments[0]);
        settings.put("group.id", arguments[1]);
        for (int at = 3; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        List<Thread> threads = new ArrayList<>();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            connector.shutdown();
            for (Thread thread : threads) {
                try {
                    thread.join(10_000);
                } catch (InterruptedException interrupted) {
                    return;
                }
            }
            say("closed");
        }));
        for (KafkaStream<byte[], byte[]> stream : streams(connector, arguments[2])) {
            int number = threads.size();
            Thread thread = new Thread(() -> consume(number, stream));
            threads.add(thread);
            thread.setDaemon(true);
            thread.start();
        }
        say("started " + threads.size());
        for (Thread thread : threads) {
            thread.join();
        }
        say("done");
    }

    static List<KafkaStream<byte[], byte[]>> streams(ConsumerConnector connector, String subscription) {
        String[] parts = subscription.split(":");
        if (parts[0].equals("white_list")) {
            return connector.createMessageStreamsByFilter(new Whitelist(parts[1]), Integer.parseInt(parts[2]));
        }
        if (parts[0].equals("black_list")) {
            return connector.createMessageStreamsByFilter(new Blacklist(parts[1]), Integer.parseInt(parts[2]));
        }
        Map<String, Integer> wanted = new LinkedHashMap<>();
        for (String one : subscription.split(",")) {
            wanted.put(one.split(":")[0], Integer.valueOf(one.split(":")[1]));
        }
        List<KafkaStream<byte[], byte[]>> all = new ArrayList<>();
        connector.createMessageStreams(wanted).values().forEach(all::addAll);
        return all;
    }

    static void consume(int number, KafkaStream<byte[], byte[]> stream) {
        try {
            for (MessageAndMetadata<byte[], byte[]> message : stream) {
                say("got " + number + " " + message.topic() + " " + message.partition() + " " + message.offset() + " "
                    + text(message.key()) + " " + text(message.message()));
            }
        } catch (ConsumerTimeoutException timeout) {
            say("timeout " + number);
        }
    }

    static String text(byte[] data) {
        return data == null ? "-" : new String(data, StandardCharsets.UTF_8);
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
