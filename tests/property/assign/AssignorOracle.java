import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
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
import org.apache.kafka.common.TopicPartition;

/**
 * Answers each line of JSON with one: what Java's own assignors make of a group, and how Java reads and writes
 * subscriptions and assignments. `tests/support/assignor_oracle.py` says what the lines look like.
 */
public class AssignorOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(request, answer);
            } catch (Exception error) {
                answer.removeAll();
                answer.put("error", error.toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    private static void answer(JsonNode request, ObjectNode answer) {
        String operation = request.path("operation").asText("assign");
        switch (operation) {
            case "assign" -> assign(request, answer);
            case "rewrite_subscription" -> {
                Subscription read = ConsumerProtocol.deserializeSubscription(bytes(request.get("bytes")));
                tell(read, answer);
                short version = (short) request.get("version").asInt();
                answer.put("bytes", hex(ConsumerProtocol.serializeSubscription(read, version)));
            }
            case "rewrite_assignment" -> {
                Assignment read = ConsumerProtocol.deserializeAssignment(bytes(request.get("bytes")));
                answer.put("user_data", read.userData() == null ? null : hex(read.userData().duplicate()));
                tell(read.partitions(), answer.putObject("partitions"));
                short version = (short) request.get("version").asInt();
                answer.put("bytes", hex(ConsumerProtocol.serializeAssignment(read, version)));
            }
            case "user_data" -> {
                ConsumerPartitionAssignor assignor = assignor(request.get("assignor").asText());
                Assignment assigned = ConsumerProtocol.deserializeAssignment(bytes(request.get("bytes")));
                int generation = request.get("generation").asInt();
                assignor.onAssignment(assigned, new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
                answer.put("bytes", hex(assignor.subscriptionUserData(Set.of())));
            }
            default -> throw new IllegalArgumentException("no operation " + operation);
        }
    }

    private static void tell(Subscription read, ObjectNode answer) {
        read.topics().forEach(answer.putArray("topics")::add);
        answer.put("user_data", read.userData() == null ? null : hex(read.userData().duplicate()));
        tell(read.ownedPartitions(), answer.putObject("owned"));
        answer.put("generation", read.generationId().orElse(null));
        answer.put("rack", read.rackId().orElse(null));
    }

    private static void tell(List<TopicPartition> partitions, ObjectNode into) {
        Map<String, List<Integer>> byTopic = new LinkedHashMap<>();
        partitions.forEach(one -> byTopic.computeIfAbsent(one.topic(), topic -> new ArrayList<>()).add(one.partition()));
        byTopic.forEach((topic, indexes) -> indexes.forEach(into.withArray("/" + pointer(topic))::add));
    }

    private static String pointer(String name) {
        return name.replace("~", "~0").replace("/", "~1");
    }

    private static void assign(JsonNode request, ObjectNode answer) {
        // The Java consumer's leader collects the subscriptions in a HashMap, too.
        Map<String, Subscription> subscriptions = new HashMap<>();
        request.get("members").fields().forEachRemaining(member -> {
            Subscription read = ConsumerProtocol.deserializeSubscription(bytes(member.getValue().get("subscription")));
            JsonNode instance = member.getValue().get("instance");
            read.setGroupInstanceId(instance.isNull() ? Optional.empty() : Optional.of(instance.asText()));
            subscriptions.put(member.getKey(), read);
        });
        Map<String, Assignment> assignments = assignor(request.get("assignor").asText())
            .assign(cluster(request.get("topics")), new GroupSubscription(subscriptions)).groupAssignment();
        assignments.forEach((member, assignment) ->
            answer.put(member, hex(ConsumerProtocol.serializeAssignment(assignment, (short) 0))));
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

    private static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new LinkedHashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.fields().forEachRemaining(topic -> {
            JsonNode racks = topic.getValue().get("racks");
            for (int index = 0; index < topic.getValue().get("partitions").asInt(); index++) {
                List<Node> replicas = new ArrayList<>();
                if (racks.isNull()) {
                    replicas.add(node(nodes, null));
                } else {
                    racks.get(index).forEach(rack -> replicas.add(node(nodes, rack.asText())));
                }
                Node[] all = replicas.toArray(new Node[0]);
                Node leader = all.length == 0 ? null : all[0];
                partitions.add(new PartitionInfo(topic.getKey(), index, leader, all, all));
            }
        });
        return new Cluster("oracle", nodes.values(), partitions, Set.of(), Set.of());
    }

    /** One broker for each rack, and one for the brokers without. */
    private static Node node(Map<String, Node> nodes, String rack) {
        Node found = nodes.get(rack);
        if (found == null) {
            found = new Node(nodes.size(), "host" + nodes.size(), 9092, rack);
            nodes.put(rack, found);
        }
        return found;
    }

    private static ByteBuffer bytes(JsonNode hex) {
        return ByteBuffer.wrap(HEX.parseHex(hex.asText()));
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HEX.formatHex(bytes);
    }
}
