import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends from several threads until the broker is gone; every printed line is an acknowledged message. */
final class Stream {
    private static final String SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX";
    private static final int QUEUE_COUNT = 4;

    private final Cluster cluster;
    private final String topic;
    private final int threadCount;

    Stream(Cluster cluster, String prefix, int threadCount) {
        this.cluster = cluster;
        this.topic = prefix + "Stream";
        this.threadCount = threadCount;
    }

    void run() throws Exception {
        cluster.createTopic(topic, QUEUE_COUNT);
        DefaultMQProducer producer = cluster.prepare(new DefaultMQProducer());
        producer.setSendMsgTimeout(3_000);
        producer.start();
        Cluster.awaitRoute(producer, topic, QUEUE_COUNT);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < threadCount; number++) {
            int queueId = number % QUEUE_COUNT;
            int seed = number;
            Thread thread = new Thread(() -> sendUntilItFails(producer, queueId, seed));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void sendUntilItFails(DefaultMQProducer producer, int queueId, int seed) {
        Random random = new Random(seed);
        try {
            for (int i = 0; ; i++) {
                if (i % 20 == 19) {
                    sendBatch(producer, queueId, seed + "-" + i, random);
                } else {
                    sendOne(producer, queueId, seed + "-" + i, i % 20 == 9, random);
                }
            }
        } catch (Exception brokerGone) {
            System.err.println("thread " + seed + " ends: " + brokerGone);
        }
    }

    private void sendOne(DefaultMQProducer producer, int queueId, String number, boolean later, Random random)
        throws Exception {
        Message message = new Message(topic, "Tag" + queueId, "stream-" + number, body(random));
        if (later) {
            message.setDelayTimeLevel(18);
        }
        SendResult result = producer.send(message, Cluster.queue(topic, queueId));
        Lines.acknowledged(later ? "delayed" : "keyed", later ? SCHEDULE_TOPIC : topic, later ? 17 : queueId, result, message);
    }

    private void sendBatch(DefaultMQProducer producer, int queueId, String number, Random random) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            messages.add(new Message(topic, "Batch", "stream-" + number + "-" + i, body(random)));
        }
        SendResult result = producer.send(messages, Cluster.queue(topic, queueId));
        String[] offsetMsgIds = result.getOffsetMsgId().split(",");
        String[] uniqKeys = result.getMsgId().split(",");
        for (int i = 0; i < messages.size(); i++) {
            Lines.acknowledged("batch", topic, queueId, result.getQueueOffset() + i, offsetMsgIds[i], uniqKeys[i],
                messages.get(i));
        }
    }

    private static byte[] body(Random random) {
        byte[] bytes = new byte[1 + random.nextInt(1_000)];
        random.nextBytes(bytes);
        return bytes;
    }
}
