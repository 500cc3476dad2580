import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;

/** Changes topics, settings and quotas of brokers 7 and 8; the argument is `bootstrap.servers`. */
public class Changes {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(settings)) {
            while (admin.describeCluster().nodes().get().size() < 2) {
                Thread.sleep(50);
            }
            topics(admin);
            quotas(admin);
        }
    }

    static void topics(Admin admin) throws Exception {
        Map<Integer, List<Integer>> wide = new HashMap<>();
        for (int partition = 0; partition < 14; partition++) {
            wide.put(partition, partition % 2 == 0 ? List.of(7, 8) : List.of(8, 7));
        }
        admin.createTopics(List.of(
            new NewTopic("wide", wide),
            new NewTopic("grown", Map.of(0, List.of(7))),
            new NewTopic("moved", Map.of(0, List.of(7), 1, List.of(8))),
            new NewTopic("gone", Map.of(0, List.of(7))),
            new NewTopic("set", Map.of(0, List.of(8))).configs(
                Map.of("retention.ms", "1", "cleanup.policy", "compact", "segment.bytes", "100000", "flush.ms", "7"))
        )).all().get();
        admin.createPartitions(Map.of("grown", NewPartitions.increaseTo(3, List.of(List.of(8), List.of(7))))).all().get();
        TopicPartition moved = new TopicPartition("moved", 0);
        admin.alterPartitionReassignments(
            Map.of(moved, Optional.of(new NewPartitionReassignment(List.of(8))))).all().get();
        while (!admin.listPartitionReassignments().reassignments().get().isEmpty()) {
            Thread.sleep(20);
        }
        set(admin, ConfigResource.Type.TOPIC, "set", "retention.ms", "5");
        set(admin, ConfigResource.Type.BROKER, "7", "log.cleaner.threads", "1");
        set(admin, ConfigResource.Type.BROKER, "", "log.retention.ms", "9000000");
        admin.deleteTopics(List.of("gone")).all().get();
    }

    static void set(Admin admin, ConfigResource.Type type, String name, String key, String value) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(type, name), List.of(change))).all().get();
    }

    static void quotas(Admin admin) throws Exception {
        quota(admin, "consumer_byte_rate", 1024, "user", "Åsa + Co");
        quota(admin, "producer_byte_rate", 2048, "user", null);
        quota(admin, "request_percentage", 50.5, "client-id", "c/1*~");
        quota(admin, "producer_byte_rate", 1e9, "client-id", null);
        quota(admin, "consumer_byte_rate", 3, "user", "u", "client-id", "c");
        quota(admin, "consumer_byte_rate", 4, "user", "u", "client-id", null);
        quota(admin, "consumer_byte_rate", 5, "user", null, "client-id", null);
        quota(admin, "connection_creation_rate", 10, "ip", "127.0.0.9");
        quota(admin, "connection_creation_rate", 1000, "ip", null);
    }

    static void quota(Admin admin, String key, double value, String... entity) throws Exception {
        Map<String, String> entries = new HashMap<>();
        for (int at = 0; at < entity.length; at += 2) {
            entries.put(entity[at], entity[at + 1]);
        }
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
            new ClientQuotaEntity(entries), List.of(new ClientQuotaAlteration.Op(key, value))))).all().get();
    }
}
