import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

/** Reads brokers, counts and start of each case and prints where Apache Kafka puts the replicas. */
public class Placement {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        ArrayNode results = json.createArrayNode();
        for (JsonNode one : json.readTree(System.in)) {
            List<BrokerMetadata> brokers = new ArrayList<>();
            one.get("brokers").forEach(broker -> brokers.add(new BrokerMetadata(
                broker.get(0).asInt(), broker.get(1).isNull() ? Optional.empty() : Optional.of(broker.get(1).asText()))));
            ObjectNode assignment = results.addObject();
            new TreeMap<>(AdminUtils.assignReplicasToBrokers(
                brokers, one.get("partitions").asInt(), one.get("factor").asInt(), one.get("start").asInt(),
                one.get("first").asInt()
            )).forEach((partition, replicas) -> {
                ArrayNode list = assignment.putArray(partition.toString());
                replicas.forEach(list::add);
            });
        }
        System.out.println(json.writeValueAsString(results));
    }
}
