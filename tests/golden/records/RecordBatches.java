// Apache Kafka's own record classes as the judge of ours.
//   RecordBatches write        one line per case: its name and the batch in hex
//   RecordBatches read         for each line of input (a batch in hex): what Kafka reads in it, one line
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.function.Consumer;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

public class RecordBatches {
    static final HexFormat HEX = HexFormat.of();
    static final long T = 1700000000000L;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("write")) {
            write();
        } else {
            read();
        }
    }

    static void write() {
        for (CompressionType codec : CompressionType.values()) {
            emit("mixed-" + codec.name, builder(codec, TimestampType.CREATE_TIME, 5, -1, (short) -1, -1, false),
                RecordBatches::mixed);
            if (codec != CompressionType.NONE) {
                emit("many-" + codec.name, builder(codec, TimestampType.CREATE_TIME, 1000, -1, (short) -1, -1, false),
                    RecordBatches::many);
            }
        }
        CompressionType none = CompressionType.NONE;
        emit("append-time", builder(none, TimestampType.LOG_APPEND_TIME, 0, -1, (short) -1, -1, false),
            RecordBatches::mixed);
        emit("idempotent", builder(none, TimestampType.CREATE_TIME, 7, 4001, (short) 3, Integer.MAX_VALUE, false),
            RecordBatches::mixed);
        emit("transactional", builder(none, TimestampType.CREATE_TIME, 7, 4001, (short) 3, 12, true),
            RecordBatches::mixed);
        emit("gaps", builder(none, TimestampType.CREATE_TIME, 100, -1, (short) -1, -1, false), b -> {
            b.appendWithOffset(103, T, bytes("a"), bytes("1"));
            b.appendWithOffset(104, T, bytes("b"), bytes("2"));
            b.appendWithOffset(900, T + 70000, bytes("c"), bytes("3"));
        });
        for (ControlRecordType kind : new ControlRecordType[] {ControlRecordType.ABORT, ControlRecordType.COMMIT}) {
            MemoryRecords marker = MemoryRecords.withEndTransactionMarker(
                42, T, 9, 4001, (short) 3, new EndTransactionMarker(kind, 17));
            System.out.println("marker-" + kind.name().toLowerCase() + " " + hex(marker.buffer()));
        }
        ByteBuffer empty = ByteBuffer.allocate(61);
        DefaultRecordBatch.writeEmptyHeader(
            empty, (byte) 2, 4001, (short) 3, 8, 20, 24, 9, TimestampType.CREATE_TIME, T, false, false);
        empty.flip();
        System.out.println("empty " + hex(empty));
    }

    static MemoryRecordsBuilder builder(CompressionType codec, TimestampType type, long baseOffset,
                                        long producerId, short epoch, int sequence, boolean transactional) {
        return MemoryRecords.builder(ByteBuffer.allocate(1024), (byte) 2, Compression.of(codec).build(), type,
            baseOffset, type == TimestampType.LOG_APPEND_TIME ? T + 99 : RecordBatch.NO_TIMESTAMP,
            producerId, epoch, sequence, transactional, 9);
    }

    static void emit(String name, MemoryRecordsBuilder builder, Consumer<MemoryRecordsBuilder> fill) {
        fill.accept(builder);
        System.out.println(name + " " + hex(builder.build().buffer()));
    }

    static void mixed(MemoryRecordsBuilder b) {
        b.append(T, bytes("key"), bytes("value"));
        b.append(T - 100000, (byte[]) null, bytes("earlier than the first"));
        b.append(T + 5, bytes("tombstone"), null);
        b.append(T + 6, (byte[]) null, null);
        b.append(T + 3000000000L, new byte[0], new byte[0], new Header[] {
            new RecordHeader("trace", bytes("1")), new RecordHeader("größe", null), new RecordHeader("", new byte[0])});
    }

    static void many(MemoryRecordsBuilder b) {
        for (int i = 0; i < 300; i++) {
            b.append(T + i * 7, bytes("key-" + i), bytes("the value of record ".repeat(1 + i % 20) + i));
        }
    }

    static void read() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            StringBuilder told = new StringBuilder();
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(line.strip())));
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                told.append(String.format("batch %d %d %d %s %s %d %d %d %d %b %b", batch.baseOffset(),
                    batch.lastOffset(), batch.partitionLeaderEpoch(), batch.compressionType().name,
                    batch.timestampType().name, batch.maxTimestamp(), batch.producerId(), batch.producerEpoch(),
                    batch.baseSequence(), batch.isTransactional(), batch.isControlBatch()));
                for (Record record : batch) {
                    told.append(String.format(";%d %d %s %s", record.offset(), record.timestamp(),
                        record.hasKey() ? "k" + hex(record.key()) : "-",
                        record.hasValue() ? "v" + hex(record.value()) : "-"));
                    for (Header header : record.headers()) {
                        told.append(" ").append(hex(ByteBuffer.wrap(bytes(header.key())))).append("=")
                            .append(header.value() == null ? "-" : "h" + HEX.formatHex(header.value()));
                    }
                }
            }
            System.out.println(told);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String hex(ByteBuffer buffer) {
        byte[] content = new byte[buffer.remaining()];
        buffer.duplicate().get(content);
        return HEX.formatHex(content);
    }
}
