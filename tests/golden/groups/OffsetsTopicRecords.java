import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;
import org.apache.kafka.server.common.MetadataVersion;

/** Prints the records of the offsets topic as Apache Kafka writes them: a name, a space, the bytes in hexadecimal. */
public class OffsetsTopicRecords {
    static void print(String name, byte[] bytes) {
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }

    static void print(String name, Message message, int version) {
        print(name + "-v" + version, MessageUtil.toVersionPrefixedBytes((short) version, message));
    }

    static GroupMetadataValue.MemberMetadata member(int version, String id, String instance, byte[] assignment) {
        GroupMetadataValue.MemberMetadata member = new GroupMetadataValue.MemberMetadata()
            .setMemberId(id)
            .setClientId("client")
            .setClientHost("/127.0.0.1")
            .setSessionTimeout(45000)
            .setSubscription(new byte[] {0, 1, 2})
            .setAssignment(assignment);
        if (version >= 1) member.setRebalanceTimeout(300000);
        if (version >= 3) member.setGroupInstanceId(instance);
        return member;
    }

    public static void main(String[] arguments) {
        for (int version = 0; version <= 1; version++)
            print("offset-key", new OffsetCommitKey().setGroup("group").setTopic("tøpic").setPartition(7), version);
        for (int version = 0; version <= 4; version++) {
            OffsetCommitValue value = new OffsetCommitValue()
                .setOffset(1234567890123L).setMetadata("where I am").setCommitTimestamp(1700000000000L);
            if (version >= 3) value.setLeaderEpoch(5);
            if (version == 1) value.setExpireTimestamp(1700000086400L);
            print("offset-value", value, version);
        }
        print("group-key", new GroupMetadataKey().setGroup("group"), 2);
        for (int version = 0; version <= 4; version++) {
            GroupMetadataValue value = new GroupMetadataValue()
                .setProtocolType("consumer").setGeneration(9).setProtocol("range").setLeader("a-1")
                .setMembers(List.of(
                    member(version, "a-1", null, new byte[] {3}),
                    member(version, "b-2", "instance", new byte[0])));
            if (version >= 2) value.setCurrentStateTimestamp(1700000000001L);
            print("group-value", value, version);
            GroupMetadataValue empty = new GroupMetadataValue()
                .setProtocolType("consumer").setGeneration(10).setProtocol(null).setLeader(null).setMembers(List.of());
            print("empty-group-value", empty, version);
        }
        MetadataVersion latest = MetadataVersion.latestProduction();
        kafka.coordinator.group.GroupMetadataManager$ manager = kafka.coordinator.group.GroupMetadataManager$.MODULE$;
        print("written-offset-key",
            manager.offsetCommitKey("g", new org.apache.kafka.common.TopicPartition("t", 0)));
        print("written-offset-value",
            manager.offsetCommitValue(
                new kafka.common.OffsetAndMetadata(42L, Optional.of(3), "", 1000L, scala.Option.empty()), latest));
        print("written-offset-value-with-expiry",
            manager.offsetCommitValue(
                new kafka.common.OffsetAndMetadata(42L, Optional.empty(), "m", 1000L, scala.Option.apply(2000L)),
                latest));
        print("written-group-key", manager.groupMetadataKey("g"));
        for (String group : List.of("", "g", "my-group", "grüppe", "\uD83D\uDC18", "polygenelubricants"))
            System.out.println("partition of " + HexFormat.of().formatHex(group.getBytes(java.nio.charset.StandardCharsets.UTF_8))
                + " " + Utils.abs(group.hashCode()) % 50);
    }
}
