// Apache Kafka's own classes as the judge of message sets (formats 0 and 1) and of the conversions to and from them.
//   MessageSets write          one line per case: its name and the bytes in hex
//   MessageSets read           for each line of input (a message set in hex): what Kafka reads in it, one line
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ConvertedRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

public class MessageSets {
    static final HexFormat HEX = HexFormat.of();
    static final long T = 1700000000000L;
    static final String[] VARIANTS = {"plain", "nullkey", "nullvalue", "empty", "notime", "mixed", "headers"};

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("write")) {
            write();
        } else {
            read();
        }
    }

    static void write() {
        for (byte magic = 0; magic <= 2; magic++) {
            for (CompressionType codec : CompressionType.values()) {
                for (TimestampType type : new TimestampType[] {TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME}) {
                    boolean legacy = magic < 2;
                    if (legacy && codec == CompressionType.ZSTD || magic == 0 && type == TimestampType.LOG_APPEND_TIME) {
                        continue;
                    }
                    for (String variant : VARIANTS) {
                        if (legacy && variant.equals("headers") || magic == 0 && variant.equals("notime")) {
                            continue;
                        }
                        String name = magic + "-" + codec.name + "-" + (type == TimestampType.CREATE_TIME ? "create" : "append")
                            + "-" + variant;
                        MemoryRecords built = build(magic, codec, type, variant);
                        System.out.println("set-" + name + " " + hex(built.buffer()));
                        if (legacy && type == TimestampType.CREATE_TIME) {
                            up(name, built, codec);
                        }
                        down(name, built, magic, codec);
                    }
                }
            }
        }
    }

    static MemoryRecords build(byte magic, CompressionType codec, TimestampType type, String variant) {
        MemoryRecordsBuilder b = MemoryRecords.builder(ByteBuffer.allocate(1024), magic, Compression.of(codec).build(),
            magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : type, 5L,
            type == TimestampType.LOG_APPEND_TIME ? T + 99 : RecordBatch.NO_TIMESTAMP);
        long[] offsets = {5, 6, 9};
        for (int i = 0; i < 3; i++) {
            byte[] key = bytes("key-" + i);
            byte[] value = bytes("value ".repeat(i + 1));
            long time = magic == 0 || variant.equals("notime") ? RecordBatch.NO_TIMESTAMP : T + 1000 - 10 * i;
            Header[] headers = new Header[0];
            if (variant.equals("nullkey") || variant.equals("mixed") && i == 1) {
                key = null;
            }
            if (variant.equals("nullvalue") || variant.equals("mixed") && i == 2) {
                value = null;
            }
            if (variant.equals("empty")) {
                key = new byte[0];
                value = new byte[0];
            }
            if (variant.equals("headers")) {
                headers = new Header[] {new RecordHeader("trace", bytes("1")), new RecordHeader("größe", null)};
            }
            b.appendWithOffset(offsets[i], time, key, value, headers);
        }
        return b.build();
    }

    // Produce 0-2: to format 2, once with the producer's times and once with the broker's.
    static void up(String name, MemoryRecords records, CompressionType codec) {
        for (TimestampType type : new TimestampType[] {TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME}) {
            ByteBuffer copy = ByteBuffer.wrap(bytesOf(records.buffer()));
            LogValidator validator = new LogValidator(MemoryRecords.readableRecords(copy), new TopicPartition("t", 0),
                STOPPED, codec, Compression.of(codec).build(), false, (byte) 2, type,
                Long.MAX_VALUE, Long.MAX_VALUE, 9, AppendOrigin.CLIENT, MetadataVersion.latestProduction());
            LogValidator.ValidationResult result = validator.validateMessagesAndAssignOffsets(
                PrimitiveRef.ofLong(100), NO_METRICS, BufferSupplier.create());
            System.out.println("up-" + name + "-to-" + (type == TimestampType.CREATE_TIME ? "create" : "append") + " "
                + hex(result.validatedRecords.buffer()));
        }
    }

    // Fetch 0-3: to formats 0 and 1, from the beginning and from within.
    static void down(String name, MemoryRecords records, byte magic, CompressionType codec) {
        if (codec == CompressionType.ZSTD) {
            return;
        }
        for (byte to = 0; to < magic; to++) {
            for (long first : new long[] {0, 6}) {
                ConvertedRecords<? extends org.apache.kafka.common.record.Records> converted =
                    records.downConvert(to, first, Time.SYSTEM);
                System.out.println("down-" + name + "-to-" + to + "-from-" + first + " "
                    + hex(((MemoryRecords) converted.records()).buffer()));
            }
        }
    }

    static final Time STOPPED = new Time() {
        public long milliseconds() {
            return T + 5000;
        }

        public long nanoseconds() {
            return 0;
        }

        public void sleep(long ms) { }

        public void waitObject(Object object, java.util.function.Supplier<Boolean> condition, long deadline) { }
    };

    static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() { }

        public void recordInvalidOffset() { }

        public void recordInvalidSequence() { }

        public void recordInvalidChecksums() { }

        public void recordNoKeyCompactedTopic() { }
    };

    static void read() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            StringBuilder told = new StringBuilder();
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(line.strip())));
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                told.append(String.format("set %d %d %s %s %d", batch.magic(), batch.lastOffset(),
                    batch.compressionType().name, batch.timestampType().name, batch.maxTimestamp()));
                for (Record record : batch) {
                    record.ensureValid();
                    told.append(String.format(";%d %d %s %s", record.offset(), record.timestamp(),
                        record.hasKey() ? "k" + hex(record.key()) : "-",
                        record.hasValue() ? "v" + hex(record.value()) : "-"));
                }
                told.append("|");
            }
            System.out.println(told);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] bytesOf(ByteBuffer buffer) {
        byte[] content = new byte[buffer.remaining()];
        buffer.duplicate().get(content);
        return content;
    }

    static String hex(ByteBuffer buffer) {
        return HEX.formatHex(bytesOf(buffer));
    }
}
