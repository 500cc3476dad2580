import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Kafka's own assignors, timed. A line `assignor<TAB>group file<TAB>result file` makes one assignment of that group,
 * writes it, and is answered by the milliseconds from decoded subscriptions to encoded assignments.
 * `assignors.py` says what the files look like.
 */
public class Assignors {
    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            System.out.println(run(words[0], Path.of(words[1]), Path.of(words[2])));
            System.out.flush();
        }
    }

    private static double run(String name, Path group, Path result) throws IOException {
        try (DataInputStream file = new DataInputStream(new BufferedInputStream(Files.newInputStream(group)))) {
            Cluster cluster = cluster(file);
            Map<String, Subscription> subscriptions = new HashMap<>();
            for (int left = file.readInt(); left > 0; left--) {
                String member = file.readUTF();
                byte[] bytes = file.readNBytes(file.readInt());
                subscriptions.put(member, ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(bytes)));
            }
            ConsumerPartitionAssignor assignor = assignor(name);
            long begun = System.nanoTime();
            Map<String, Assignment> assigned = assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
            Map<String, ByteBuffer> encoded = new LinkedHashMap<>();
            assigned.forEach((member, one) -> encoded.put(member, ConsumerProtocol.serializeAssignment(one, (short) 0)));
            double ms = (System.nanoTime() - begun) / 1e6;
            write(encoded, result);
            return ms;
        }
    }

    private static Cluster cluster(DataInputStream file) throws IOException {
        Node node = new Node(0, "localhost", 9092);
        Node[] nodes = {node};
        List<PartitionInfo> partitions = new ArrayList<>();
        for (int left = file.readInt(); left > 0; left--) {
            String topic = file.readUTF();
            int count = file.readInt();
            for (int index = 0; index < count; index++) {
                partitions.add(new PartitionInfo(topic, index, node, nodes, nodes));
            }
        }
        return new Cluster("bench", List.of(node), partitions, Set.of(), Set.of());
    }

    private static void write(Map<String, ByteBuffer> encoded, Path result) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream file = new DataOutputStream(bytes);
        file.writeInt(encoded.size());
        for (Map.Entry<String, ByteBuffer> one : encoded.entrySet()) {
            file.writeUTF(one.getKey());
            file.writeInt(one.getValue().remaining());
            file.write(one.getValue().array(), one.getValue().arrayOffset(), one.getValue().remaining());
        }
        Files.write(result, bytes.toByteArray());
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException("no assignor " + name);
        };
    }
}
