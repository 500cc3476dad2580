import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import kafka.coordinator.transaction.TransactionLog$;
import kafka.coordinator.transaction.TransactionState$;
import kafka.coordinator.transaction.TxnTransitMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKey;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;

/**
 * Prints the records of the transactions topic as Apache Kafka writes them: a name, a space, the bytes in hexadecimal.
 *
 * <p>With an argument it reads keys and values of that form and prints what Apache Kafka takes from them.
 */
public class TransactionTopicRecords {
    static void print(String name, byte[] bytes) {
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }

    static void print(String name, Message message, int version) {
        print(name + "-v" + version, MessageUtil.toVersionPrefixedBytes((short) version, message));
    }

    static TransactionLogValue value(int status) {
        return new TransactionLogValue()
            .setProducerId(1234567890123L).setProducerEpoch((short) 32766).setTransactionTimeoutMs(60000)
            .setTransactionStatus((byte) status)
            .setTransactionLastUpdateTimestampMs(1700000000001L).setTransactionStartTimestampMs(1700000000000L);
    }

    static TransactionLogValue withPartitions(int status) {
        return value(status).setTransactionPartitions(List.of(
            new TransactionLogValue.PartitionsSchema().setTopic("__consumer_offsets").setPartitionIds(List.of(7)),
            new TransactionLogValue.PartitionsSchema().setTopic("tøpic").setPartitionIds(List.of(0, 5))));
    }

    static RawTaggedField tag(int number, ByteBuffer data) {
        return new RawTaggedField(number, data.array());
    }

    /** Written by the coordinator itself, in the version that it writes today. */
    static byte[] written(int status, scala.collection.immutable.Set<TopicPartition> partitions) {
        return TransactionLog$.MODULE$.valueToBytes(new TxnTransitMetadata(
            1234567890123L, -1L, (short) 32766, (short) -1, 60000, TransactionState$.MODULE$.fromId((byte) status),
            partitions, status == 0 ? -1L : 1700000000000L, 1700000000001L), false);
    }

    static void read(String[] arguments) {
        for (int at = 0; at < arguments.length; at += 2) {
            String id = TransactionLog$.MODULE$
                .readTxnRecordKey(ByteBuffer.wrap(HexFormat.of().parseHex(arguments[at]))).transactionalId();
            ByteBuffer value = ByteBuffer.wrap(HexFormat.of().parseHex(arguments[at + 1]));
            System.out.println(TransactionLog$.MODULE$.readTxnRecordValue(id, value).get());
        }
    }

    public static void main(String[] arguments) {
        if (arguments.length > 0) {
            read(arguments);
            return;
        }
        print("key", new TransactionLogKey().setTransactionalId("trånsactional"), 0);
        for (int version = 0; version <= 1; version++) {
            for (int status = 1; status <= 5; status++)
                print("value-" + status, withPartitions(status), version);
            print("value-0", value(0).setTransactionPartitions(null).setTransactionStartTimestampMs(-1), version);
        }
        TransactionLogValue tagged = withPartitions(2);
        tagged.unknownTaggedFields().addAll(List.of(
            tag(0, ByteBuffer.allocate(8).putLong(1234567890122L)),
            tag(1, ByteBuffer.allocate(8).putLong(1234567890124L)),
            tag(2, ByteBuffer.allocate(2).putShort((short) 2))));
        print("tagged-value", tagged, 1);
        scala.collection.immutable.Set<TopicPartition> none = new scala.collection.immutable.HashSet<>();
        print("written-empty", written(0, none));
        print("written-ongoing", written(1, new scala.collection.immutable.Set.Set1<>(new TopicPartition("t", 3))));
        print("written-complete", written(4, none));
        print("written-key", TransactionLog$.MODULE$.keyToBytes("t"));
    }
}
