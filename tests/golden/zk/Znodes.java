import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import kafka.api.LeaderAndIsr;
import kafka.cluster.EndPoint;
import kafka.controller.LeaderIsrAndControllerEpoch;
import kafka.controller.ReplicaAssignment;
import kafka.zk.BrokerIdZNode;
import kafka.zk.ConfigEntityChangeNotificationSequenceZNode;
import kafka.zk.ConfigEntityZNode;
import kafka.zk.ConsumerOffset;
import kafka.zk.ControllerZNode;
import kafka.zk.DelegationTokenChangeNotificationSequenceZNode;
import kafka.zk.DelegationTokenInfoZNode;
import kafka.zk.DeleteTopicsTopicZNode;
import kafka.zk.IsrChangeNotificationSequenceZNode;
import kafka.zk.LogDirEventNotificationSequenceZNode;
import kafka.zk.PreferredReplicaElectionZNode;
import kafka.zk.ReassignPartitionsZNode;
import kafka.zk.TopicPartitionStateZNode;
import kafka.zk.TopicZNode;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.feature.Features;
import org.apache.kafka.common.message.AlterPartitionRequestData.BrokerState;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.metadata.LeaderRecoveryState;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Prints what Apache Kafka writes to ZooKeeper: a line for each case, name, path and data apart by tabs. */
public class Znodes {
    static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    static final Uuid ID = new Uuid(0x0123456789abcdefL, 0xfedcba9876543210L);

    public static void main(String[] arguments) throws Exception {
        brokers();
        topics();
        configs();
        admin();
        tokens();
        for (String name : List.of("plain", "Åsa Öl", "a+b*c~d/e", "<default>", "::1", "%25.-_", "\uD83D\uDE00", " ")) {
            tell("entity " + name, ConfigEntityZNode.path("users", Sanitizer.sanitize(name)), new byte[0]);
        }
    }

    static void brokers() {
        List<EndPoint> plain = List.of(endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 9092));
        List<EndPoint> several = List.of(
            endpoint("OUT", SecurityProtocol.SASL_SSL, "out.example", 9093),
            endpoint("IN", SecurityProtocol.PLAINTEXT, "::1", 9094),
            endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 9095));
        broker("broker", 7, "127.0.0.1", 9092, plain, Option.empty());
        broker("broker with a rack", 7, "127.0.0.1", 9092, plain, Option.apply("r \"1\""));
        broker("broker with listeners", 8, "::1", 9094, several, Option.empty());
        broker("broker without plaintext", 9, null, -1, several.subList(0, 1), Option.empty());
    }

    static EndPoint endpoint(String name, SecurityProtocol protocol, String host, int port) {
        return new EndPoint(host, port, new ListenerName(name), protocol);
    }

    static void broker(String name, int id, String host, int port, List<EndPoint> endpoints, Option<String> rack) {
        tell(name, BrokerIdZNode.path(id), BrokerIdZNode.encode(
            5, host, port, CollectionConverters.asScala(endpoints).toSeq(), -1, rack, Features.emptySupportedFeatures()));
    }

    static void topics() {
        for (int partitions : new int[] {1, 2, 5, 11, 12, 13, 40, 1100}) {
            Map<TopicPartition, ReplicaAssignment> assignment = new LinkedHashMap<>();
            for (int partition = 0; partition < partitions; partition++) {
                assignment.put(new TopicPartition("t", partition), replicas(List.of(partition % 3, 7), List.of(), List.of()));
            }
            topic("topic of " + partitions, Option.apply(ID), assignment);
        }
        topic("topic without id", Option.empty(),
            Map.of(new TopicPartition("t", 0), replicas(List.of(1), List.of(), List.of())));
        topic("topic that moves", Option.apply(ID), Map.of(
            new TopicPartition("t", 0), replicas(List.of(1, 2, 3), List.of(2, 3), List.of(1))));
        List<BrokerState> inSync = List.of(new BrokerState().setBrokerId(8), new BrokerState().setBrokerId(7));
        LeaderAndIsr leader = new LeaderAndIsr(
            8, 3, LeaderRecoveryState.RECOVERED, CollectionConverters.asScala(inSync).toList(), 5);
        tell("state", TopicPartitionStateZNode.path(new TopicPartition("t", 12)),
            TopicPartitionStateZNode.encode(new LeaderIsrAndControllerEpoch(leader, 4)));
    }

    static ReplicaAssignment replicas(List<Object> all, List<Object> adding, List<Object> removing) {
        return new ReplicaAssignment(
            CollectionConverters.asScala(all).toSeq(), CollectionConverters.asScala(adding).toSeq(),
            CollectionConverters.asScala(removing).toSeq());
    }

    static void topic(String name, Option<Uuid> id, Map<TopicPartition, ReplicaAssignment> assignment) {
        tell(name, TopicZNode.path("t"), TopicZNode.encode(id, CollectionConverters.asScala(assignment)));
    }

    static void configs() {
        String[] names = {
            "cleanup.policy", "retention.ms", "segment.bytes", "compression.type", "max.message.bytes", "flush.ms",
            "flush.messages", "index.interval.bytes", "min.insync.replicas", "preallocate", "retention.bytes",
            "segment.ms", "delete.retention.ms", "file.delete.delay.ms", "max.compaction.lag.ms", "segment.index.bytes",
            "min.compaction.lag.ms", "min.cleanable.dirty.ratio", "segment.jitter.ms", "unclean.leader.election.enable",
            "message.timestamp.type", "message.downconversion.enable", "gzip", "lz4", "zstd",
        };
        for (int count = 0; count <= names.length; count++) {
            Properties config = new Properties();
            for (String name : Arrays.copyOf(names, count)) {
                config.put(name, "1");
            }
            tell("settings of " + count, ConfigEntityZNode.path("topics", "t"), ConfigEntityZNode.encode(config));
        }
        Properties odd = new Properties();
        odd.put("odd", "\"\\/ \b\f\n\r\t\u0000\u001f\u007f\u0085\u2028ü€\uD83D\uDE00");
        tell("odd settings", ConfigEntityZNode.path("brokers", "<default>"), ConfigEntityZNode.encode(odd));
        tell("change", "", ConfigEntityChangeNotificationSequenceZNode.encode("users/%C3%85sa/clients/<default>"));
    }

    static void admin() {
        TopicPartition a = new TopicPartition("a", 0);
        TopicPartition b = new TopicPartition("b", 11);
        Set<TopicPartition> both = new LinkedHashSet<>(List.of(b, a));
        scala.collection.immutable.Set<TopicPartition> set = CollectionConverters.<TopicPartition>asScala(both).toSet();
        tell("isr change", IsrChangeNotificationSequenceZNode.path("0000000003"),
            IsrChangeNotificationSequenceZNode.encode(set));
        tell("log folder event", LogDirEventNotificationSequenceZNode.path("0000000004"),
            LogDirEventNotificationSequenceZNode.encode(5));
        tell("election", PreferredReplicaElectionZNode.path(), PreferredReplicaElectionZNode.encode(set));
        Map<TopicPartition, scala.collection.Seq<Object>> moved = new LinkedHashMap<>();
        moved.put(b, CollectionConverters.asScala(List.<Object>of(3, 4)).toSeq());
        moved.put(a, CollectionConverters.asScala(List.<Object>of(5)).toSeq());
        tell("reassignment", ReassignPartitionsZNode.path(), ReassignPartitionsZNode.encode(
            CollectionConverters.asScala(moved)));
        tell("deletion", DeleteTopicsTopicZNode.path("a"), new byte[0]);
        tell("controller", ControllerZNode.path(), ControllerZNode.encode(7, 1234567890123L, -1));
        tell("position", ConsumerOffset.path("g", "a", 11), ConsumerOffset.encode(42));
    }

    static void tokens() {
        token("token", List.of());
        token("token with renewers", List.of(principal("bob"), principal("CN=é,O=\"b\":x")));
        tell("token change", DelegationTokenChangeNotificationSequenceZNode.createPath(),
            DelegationTokenChangeNotificationSequenceZNode.encode("TMTeg9xQTq-rfG4KMMhG1A"));
    }

    static void token(String name, List<KafkaPrincipal> renewers) {
        TokenInformation info = new TokenInformation("TMTeg9xQTq-rfG4KMMhG1A", principal("alice"), principal("carol"),
            renewers, 1700000000001L, 1700000000003L, 1700000000002L);
        tell(name, DelegationTokenInfoZNode.path(info.tokenId()),
            DelegationTokenInfoZNode.encode(info));
    }

    static KafkaPrincipal principal(String name) {
        return new KafkaPrincipal("User", name);
    }

    static void tell(String name, String path, byte[] data) {
        OUT.println(name + "\t" + path + "\t" + new String(data, StandardCharsets.UTF_8));
    }
}
