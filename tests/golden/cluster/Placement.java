import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

/**
 * Reads a case a line (brokers with their racks, counts, fixed start or -1, first partition, seed) and prints where
 * Apache Kafka's AdminUtils puts the replicas, or its exception. Without a fixed start it draws start and shift from a
 * Random of its own, which gets the case's seed; what it draws is printed, too.
 */
public class Placement {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Field field = AdminUtils.class.getDeclaredField("RAND");
        field.setAccessible(true);
        Random random = (Random) field.get(null);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder printed = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            printed.append(JSON.writeValueAsString(answer(JSON.readTree(line), random))).append('\n');
        }
        System.out.print(printed);
    }

    private static ObjectNode answer(JsonNode one, Random random) {
        List<BrokerMetadata> brokers = new ArrayList<>();
        one.get("brokers").forEach(broker -> brokers.add(new BrokerMetadata(
            broker.get(0).asInt(), broker.get(1).isNull() ? Optional.empty() : Optional.of(broker.get(1).asText()))));
        int fixed = one.get("fixed").asInt();
        random.setSeed(one.get("seed").asLong());
        ObjectNode answer = JSON.createObjectNode();
        Map<Integer, List<Integer>> assignment;
        try {
            assignment = new TreeMap<>(AdminUtils.assignReplicasToBrokers(
                brokers, one.get("partitions").asInt(), one.get("factor").asInt(), fixed, one.get("first").asInt()));
        } catch (RuntimeException error) {
            return answer.put("error", error.getClass().getSimpleName()).put("message", error.getMessage());
        }
        Random same = new Random(one.get("seed").asLong());
        answer.put("start", fixed >= 0 ? fixed : same.nextInt(brokers.size()));
        answer.put("shift", fixed >= 0 ? fixed : same.nextInt(brokers.size()));
        ArrayNode replicas = answer.putArray("replicas");
        assignment.forEach((partition, some) -> {
            ArrayNode list = replicas.addArray();
            some.forEach(list::add);
        });
        return answer;
    }
}
