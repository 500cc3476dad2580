import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Prints what Apache Kafka's RemoteClusterUtils finds at a target: bootstrap servers, the source's alias, a group. */
public class RemoteOffsets {
    public static void main(String[] arguments) throws Exception {
        String alias = arguments[1];
        Map<String, Object> properties = new HashMap<>(Map.of("bootstrap.servers", arguments[0]));
        Map<String, String> offsets = new TreeMap<>();
        for (Map.Entry<TopicPartition, OffsetAndMetadata> each :
                RemoteClusterUtils.translateOffsets(properties, alias, arguments[2], Duration.ofSeconds(30)).entrySet())
            offsets.put(each.getKey().toString(), each.getValue().offset() + " " + each.getValue().metadata());
        offsets.forEach((partition, offset) -> System.out.println("offset " + partition + " " + offset));
        System.out.println("upstream " + new TreeSet<>(RemoteClusterUtils.upstreamClusters(properties)).contains(alias));
        System.out.println("hops " + RemoteClusterUtils.replicationHops(properties, alias));
        System.out.println("checkpoints " + new TreeSet<>(RemoteClusterUtils.checkpointTopics(properties)).contains(alias + ".checkpoints.internal"));
        try (MirrorClient client = new MirrorClient(properties)) {
            for (String topic : new TreeSet<>(client.remoteTopics(alias))) System.out.println("topic " + topic);
        }
    }
}
