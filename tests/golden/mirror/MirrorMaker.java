import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.Checkpoint;
import org.apache.kafka.connect.mirror.ConfigPropertyFilter;
import org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter;
import org.apache.kafka.connect.mirror.DefaultGroupFilter;
import org.apache.kafka.connect.mirror.DefaultReplicationPolicy;
import org.apache.kafka.connect.mirror.DefaultTopicFilter;
import org.apache.kafka.connect.mirror.Heartbeat;
import org.apache.kafka.connect.mirror.IdentityReplicationPolicy;
import org.apache.kafka.connect.mirror.MirrorSourceConnector;
import org.apache.kafka.connect.mirror.OffsetSync;
import org.apache.kafka.connect.mirror.OffsetSyncStore;
import org.apache.kafka.connect.mirror.ReplicationPolicy;
import org.apache.kafka.connect.mirror.SourceAndTarget;
import org.apache.kafka.connect.mirror.TopicFilter;

/** Prints what MirrorMaker 2's own classes write and decide: a name, a space, the result. */
public class MirrorMaker {
    static final List<String> TOPICS = List.of(
        "orders", "orders.internal", "orders-internal", "internal", "orders.replica", "__consumer_offsets", ".hidden",
        "mm2-offset-syncs.east.internal", "east.checkpoints.internal", "heartbeats", "north.heartbeats",
        "east.heartbeats", "north.east.heartbeats", "my-heartbeats", "east.my-heartbeats", "east.orders", "north.orders", "north.east.orders",
        "eastern.orders", "orders.east", "orders.east.", "east..", "east.", "a.b.c", "payments", "west.orders");
    static final List<String> GROUPS = List.of(
        "readers", "console-consumer-1", "connect-sink", "connect", "__internal", "readers-2");
    static final List<String> SETTINGS = List.of(
        "cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms", "message.timestamp.type", "message.timestamp.before.max.ms",
        "unclean.leader.election.enable", "min.insync.replicas", "retention.ms", "segment.bytes");

    static <T extends AccessibleObject> T open(T member) {
        member.setAccessible(true);
        return member;
    }

    static void print(String name, Object written) throws Exception {
        for (String part : List.of("recordKey", "recordValue")) {
            Method method = open(written.getClass().getDeclaredMethod(part));
            byte[] bytes = (byte[]) method.invoke(written);
            System.out.println(name + "-" + part + " " + HexFormat.of().formatHex(bytes));
        }
    }

    static void printNames(String name, ReplicationPolicy policy) throws Exception {
        DefaultTopicFilter filter = new DefaultTopicFilter();
        filter.configure(Map.of("topics", "(?!payments).*"));
        Constructor<MirrorSourceConnector> made = open(MirrorSourceConnector.class.getDeclaredConstructor(
            SourceAndTarget.class, ReplicationPolicy.class, TopicFilter.class, ConfigPropertyFilter.class));
        MirrorSourceConnector connector = made.newInstance(
            new SourceAndTarget("west", "east"), policy, filter, new DefaultConfigPropertyFilter());
        Method wanted = open(MirrorSourceConnector.class.getDeclaredMethod("shouldReplicateTopic", String.class));
        for (String topic : TOPICS) {
            boolean mirrored = (boolean) wanted.invoke(connector, topic);
            System.out.println(name + "-" + topic + " " + (mirrored ? policy.formatRemoteTopic("west", topic) : "-"));
        }
    }

    static void printTranslations(String name, long[][] syncs, long[] offsets) throws Exception {
        OffsetSyncStore store = open(OffsetSyncStore.class.getDeclaredConstructor()).newInstance();
        Field read = open(OffsetSyncStore.class.getDeclaredField("readToEnd"));
        read.setBoolean(store, true);
        Method handle = open(OffsetSyncStore.class.getDeclaredMethod("handleRecord", ConsumerRecord.class));
        TopicPartition partition = new TopicPartition("orders", 3);
        for (long[] sync : syncs) {
            OffsetSync written = new OffsetSync(partition, sync[0], sync[1]);
            byte[] key = (byte[]) open(OffsetSync.class.getDeclaredMethod("recordKey")).invoke(written);
            byte[] value = (byte[]) open(OffsetSync.class.getDeclaredMethod("recordValue")).invoke(written);
            handle.invoke(store, new ConsumerRecord<>("syncs", 0, 0, key, value));
        }
        for (long offset : offsets) {
            OptionalLong found = store.translateDownstream("group", partition, offset);
            System.out.println(name + "-" + offset + " " + (found.isPresent() ? found.getAsLong() : "none"));
        }
    }

    public static void main(String[] arguments) throws Exception {
        TopicPartition partition = new TopicPartition("tøpic", 7);
        print("sync", new OffsetSync(partition, 1234567890123L, 42L));
        print("checkpoint", new Checkpoint("grøup", partition, 1234567890123L, 42L, "where I am"));
        print("plain-checkpoint", new Checkpoint("g", new TopicPartition("west.t", 0), 0L, 0L, ""));
        print("heartbeat", new Heartbeat("west", "east", 1700000000001L));
        DefaultReplicationPolicy plain = new DefaultReplicationPolicy();
        printNames("topic", plain);
        IdentityReplicationPolicy unchanged = new IdentityReplicationPolicy();
        unchanged.configure(Map.of("source.cluster.alias", "west"));
        printNames("unchanged", unchanged);
        System.out.println("offset-syncs-topic " + plain.offsetSyncsTopic("east"));
        System.out.println("checkpoints-topic " + plain.checkpointsTopic("west"));
        DefaultGroupFilter groups = new DefaultGroupFilter();
        groups.configure(Map.of());
        for (String group : GROUPS) System.out.println("group-" + group + " " + groups.shouldReplicateGroup(group));
        DefaultConfigPropertyFilter settings = new DefaultConfigPropertyFilter();
        for (String name : SETTINGS)
            System.out.println("setting-" + name + " " + settings.shouldReplicateConfigProperty(name));
        long[] offsets = {0, 1, 99, 100, 101, 150, 199, 200, 201, 300, 1000};
        printTranslations("none", new long[][] {}, offsets);
        printTranslations("one", new long[][] {{100, 40}}, offsets);
        printTranslations("three", new long[][] {{100, 40}, {150, 90}, {200, 141}}, offsets);
        printTranslations("rewound", new long[][] {{100, 100}, {200, 200}, {150, 260}}, offsets);
        printTranslations("again", new long[][] {{100, 100}, {199, 199}, {100, 200}, {199, 299}}, offsets);
    }
}
