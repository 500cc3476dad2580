import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Scanner;
import java.util.Set;
import org.apache.kafka.clients.producer.RoundRobinPartitioner;
import org.apache.kafka.clients.producer.UniformStickyPartitioner;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Utils;

/** Java's own partitioners, asked line by line: see test_partitioners_against_java.py. */
public class Partitioners {
    static final Node NODE = new Node(0, "h", 1);
    static final Scanner in = new Scanner(System.in);

    public static void main(String[] args) throws Exception {
        while (in.hasNext()) {
            switch (in.next()) {
                case "key" -> System.out.println(ofKey(in.next().substring(1), in.nextInt()));
                case "round" -> System.out.println(round(cluster(in.next()), in.nextInt()));
                case "sticky" -> System.out.println(sticky(cluster(in.next()), in.nextInt()));
                case "default" -> System.out.println(uniform(cluster(in.next()), in.nextInt()));
                default -> throw new IllegalArgumentException();
            }
        }
    }

    static int ofKey(String hex, int count) {
        return Utils.toPositive(Utils.murmur2(HexFormat.of().parseHex(hex))) % count;
    }

    /** A letter per partition: y where it has a leader, n where not. */
    static Cluster cluster(String leaders) {
        List<PartitionInfo> partitions = new ArrayList<>();
        for (int i = 0; i < leaders.length(); i++) {
            Node leader = leaders.charAt(i) == 'y' ? NODE : null;
            partitions.add(new PartitionInfo("t", i, leader, new Node[] {NODE}, new Node[] {NODE}));
        }
        return new Cluster("c", List.of(NODE), partitions, Set.of(), Set.of());
    }

    static String round(Cluster cluster, int times) {
        RoundRobinPartitioner partitioner = new RoundRobinPartitioner();
        StringBuilder chosen = new StringBuilder();
        for (int i = 0; i < times; i++) {
            chosen.append(partitioner.partition("t", null, null, null, null, cluster)).append(' ');
        }
        return chosen.toString();
    }

    static String sticky(Cluster cluster, int times) {
        UniformStickyPartitioner partitioner = new UniformStickyPartitioner();
        StringBuilder chosen = new StringBuilder();
        for (int i = 0; i < times; i++) {
            int partition = partitioner.partition("t", null, null, null, null, cluster);
            chosen.append(partition).append(' ');
            partitioner.onNewBatch("t", cluster, partition);
        }
        return chosen.toString();
    }

    /** The default partitioner, with steps of bytes or of loads: its partition behind each, and whether it is a new choice. */
    static String uniform(Cluster cluster, int steps) throws Exception {
        Object made = new BuiltInPartitioner(new LogContext(), "t", in.nextInt());
        Method peek = method("peekCurrentPartitionInfo");
        Method update = method("updatePartitionInfo");
        Method load = method("updatePartitionLoadStats");
        StringBuilder chosen = new StringBuilder();
        for (int i = 0; i < steps; i++) {
            Object info = peek.invoke(made, cluster);
            if (in.next().equals("load")) {
                int length = in.nextInt();
                int[] queues = new int[cluster.partitionCountForTopic("t")];
                int[] ids = new int[queues.length];
                for (int j = 0; j < length; j++) {
                    ids[j] = in.nextInt();
                    queues[j] = in.nextInt();
                }
                load.invoke(made, queues, ids, length);
            } else {
                update.invoke(made, info, in.nextInt(), cluster, in.nextBoolean());
            }
            Object after = peek.invoke(made, cluster);
            Method partition = after.getClass().getDeclaredMethod("partition");
            chosen.append(partition.invoke(after)).append(after == info ? " same " : " new ");
        }
        return chosen.toString();
    }

    static Method method(String name) {
        Method found = Arrays.stream(BuiltInPartitioner.class.getDeclaredMethods())
            .filter(each -> each.getName().equals(name)).max((a, b) -> a.getParameterCount() - b.getParameterCount()).get();
        found.setAccessible(true);
        return found;
    }
}
