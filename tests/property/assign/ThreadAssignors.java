// What Apache Kafka 0.8.2's own assignors over threads give each case, one line of standard input:
//   range|roundrobin topic=partitions,... topic=consumer/thread+consumer/thread,...
// A line of `topic:partition=consumer-thread` for each, in no order, or `refused`.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import kafka.common.TopicAndPartition;
import kafka.consumer.AssignmentContext;
import kafka.consumer.ConsumerThreadId;
import kafka.consumer.PartitionAssignor;
import kafka.consumer.RangeAssignor;
import kafka.consumer.RoundRobinAssignor;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.JavaConverters;
import scala.collection.Seq;
import scala.collection.Set;

public class ThreadAssignors {
    /** What a consumer reads in ZooKeeper, without a ZooKeeper. */
    static class Context extends AssignmentContext {
        String me;
        java.util.Map<String, Seq<Object>> partitions;
        java.util.Map<String, List<ConsumerThreadId>> threads;

        Context() {
            super(null, null, false, null);
        }

        @Override
        public String consumerId() {
            return me;
        }

        @Override
        public scala.collection.Map<String, Set<ConsumerThreadId>> myTopicThreadIds() {
            java.util.Map<String, Set<ConsumerThreadId>> mine = new HashMap<>();
            threads.forEach((topic, all) -> {
                java.util.Set<ConsumerThreadId> own = new java.util.HashSet<>(all);
                own.removeIf(one -> !one.consumer().equals(me));
                if (!own.isEmpty()) {
                    mine.put(topic, JavaConverters.asScalaSetConverter(own).asScala());
                }
            });
            return JavaConverters.mapAsScalaMapConverter(mine).asScala();
        }

        @Override
        public scala.collection.Map<String, Seq<Object>> partitionsForTopic() {
            return JavaConverters.mapAsScalaMapConverter(partitions).asScala();
        }

        @Override
        public scala.collection.Map<String, scala.collection.immutable.List<ConsumerThreadId>> consumersForTopic() {
            java.util.Map<String, scala.collection.immutable.List<ConsumerThreadId>> all = new LinkedHashMap<>();
            threads.forEach((topic, list) -> all.put(topic, JavaConverters.asScalaBufferConverter(list).asScala().toList()));
            return JavaConverters.mapAsScalaMapConverter(all).asScala();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        sun.misc.Unsafe unsafe = (sun.misc.Unsafe) field.get(null);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            Context context = (Context) unsafe.allocateInstance(Context.class);
            read(words, context);
            PartitionAssignor assignor = words[0].equals("range") ? new RangeAssignor() : new RoundRobinAssignor();
            System.out.println(assigned(assignor, context));
        }
    }

    static void read(String[] words, Context context) {
        context.partitions = new HashMap<>();
        for (String part : words[1].split(",")) {
            List<Object> numbers = new ArrayList<>();
            for (int number = 0; number < Integer.parseInt(part.split("=")[1]); number++) {
                numbers.add(number);
            }
            context.partitions.put(part.split("=")[0], JavaConverters.asScalaBufferConverter(numbers).asScala());
        }
        context.threads = new LinkedHashMap<>();
        for (String part : words[2].split(",")) {
            List<ConsumerThreadId> threads = new ArrayList<>();
            for (String thread : part.split("=")[1].split("\\+")) {
                threads.add(new ConsumerThreadId(thread.split("/")[0], Integer.parseInt(thread.split("/")[1])));
            }
            Collections.sort(threads, (one, other) -> one.compare(other));
            context.threads.put(part.split("=")[0], threads);
        }
    }

    static String assigned(PartitionAssignor assignor, Context context) {
        java.util.Set<String> consumers = new java.util.TreeSet<>();
        context.threads.values().forEach(list -> list.forEach(one -> consumers.add(one.consumer())));
        StringBuilder told = new StringBuilder();
        for (String consumer : consumers) {
            context.me = consumer;
            try {
                Iterator<Tuple2<TopicAndPartition, ConsumerThreadId>> pairs = assignor.assign(context).iterator();
                while (pairs.hasNext()) {
                    Tuple2<TopicAndPartition, ConsumerThreadId> pair = pairs.next();
                    told.append(pair._1().topic()).append(':').append(pair._1().partition()).append('=')
                        .append(pair._2()).append(' ');
                }
            } catch (IllegalArgumentException refused) {
                return "refused";
            }
        }
        return told.toString().trim();
    }
}
