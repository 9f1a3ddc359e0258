import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends a bounded number of messages of every kind, one after the other, and prints every acknowledgement. */
final class Produce {
    private static final String HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC";
    private static final String SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX";
    private static final int QUEUE_COUNT = 4;
    private static final String[] TAGS = {"TagA", "TagZZZZZZ", "\u4e2d\u6587", "\ud83d\ude00", "polygenelubricants", "a||b"};
    private static final int[] LARGE_BYTES = {5_000, 64 << 10, 300_000, 1 << 20};

    private final Cluster cluster;
    private final String prefix;
    private final int seed;
    private final Random random;
    private final DefaultMQProducer producer;
    private final DefaultMQProducer rawProducer; // never compresses
    private final TransactionMQProducer transactionProducer;
    private final Map<String, String> halfIds = new ConcurrentHashMap<>();

    Produce(Cluster cluster, String prefix, int seed) throws Exception {
        this.cluster = cluster;
        this.prefix = prefix;
        this.seed = seed;
        this.random = new Random(seed);
        producer = cluster.prepare(new DefaultMQProducer());
        rawProducer = cluster.prepare(new DefaultMQProducer());
        rawProducer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        transactionProducer = cluster.prepare(new TransactionMQProducer());
        transactionProducer.setTransactionListener(new Decide());
        transactionProducer.getDefaultMQProducerImpl().registerSendMessageHook(new NoteHalfIds());
    }

    void run() throws Exception {
        String[] topics = {"Plain", "Ordered", "Batch", "Delayed", "Transactions", "Large"};
        for (String topic : topics) {
            cluster.createTopic(prefix + topic, QUEUE_COUNT);
        }
        for (DefaultMQProducer each : new DefaultMQProducer[] {producer, rawProducer, transactionProducer}) {
            each.start();
            for (String topic : topics) {
                Cluster.awaitRoute(each, prefix + topic, QUEUE_COUNT);
            }
        }
        plain(prefix + "Plain");
        ordered(prefix + "Ordered");
        batches(prefix + "Batch");
        large(prefix + "Large");
        delayed(prefix + "Delayed");
        transactions(prefix + "Transactions");
    }

    private void plain(String topic) throws Exception {
        for (int i = 0; i < 120; i++) {
            send("plain", new Message(topic, body(1 + random.nextInt(600))), i % QUEUE_COUNT);
        }
        for (int i = 0; i < 24; i++) {
            Message message = new Message(topic, TAGS[i % TAGS.length], body(20 + i));
            message.setFlag(i);
            send("tagged", message, i % QUEUE_COUNT);
        }
        for (int i = 0; i < 24; i++) {
            send("keyed", new Message(topic, TAGS[i % TAGS.length], "key-" + seed + "-" + i, body(50)), i % QUEUE_COUNT);
        }
        for (int i = 0; i < 12; i++) {
            String keys = "multi-" + seed + "-" + i + " shared-" + seed + " \u952e\u00e9\ud83d\ude00-" + seed + "-" + i;
            Message message = new Message(topic, TAGS[i % TAGS.length], keys, body(80));
            message.putUserProperty("colour", "bl\u00e5 \ud83d\ude00");
            send("multi-key", message, i % QUEUE_COUNT);
        }
        Message noWait = new Message(topic, body(10));
        noWait.setWaitStoreMsgOK(false);
        send("no-wait", noWait, 0);
    }

    private void ordered(String topic) throws Exception {
        for (int i = 0; i < 60; i++) { // more than one queue file holds, so that queue 0 rolls
            Message message = new Message(topic, "step", ("order " + seed + " step " + i).getBytes(StandardCharsets.UTF_8));
            int asked = i < 54 ? 0 : 1 + i % 3;
            SendResult result = producer.send(message, (queues, sent, queueId) -> Cluster.queue(topic, (Integer) queueId), asked);
            Lines.acknowledged("ordered", topic, asked, result, message);
        }
    }

    private void batches(String topic) throws Exception {
        for (int batch = 0; batch < 6; batch++) {
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < 1 + batch * 3; i++) {
                messages.add(new Message(topic, TAGS[i % 2], "batch-" + seed + "-" + batch + "-" + i, body(30 + i)));
            }
            int queueId = batch % 2;
            SendResult result = producer.send(messages, Cluster.queue(topic, queueId));
            String[] offsetMsgIds = result.getOffsetMsgId().split(",");
            String[] uniqKeys = result.getMsgId().split(",");
            for (int i = 0; i < messages.size(); i++) {
                Lines.acknowledged("batch", topic, queueId, result.getQueueOffset() + i, offsetMsgIds[i], uniqKeys[i],
                    messages.get(i));
            }
        }
    }

    private void large(String topic) throws Exception {
        for (int i = 0; i < 2 * LARGE_BYTES.length; i++) { // more than one log file holds
            byte[] text = new byte[LARGE_BYTES[i % LARGE_BYTES.length]];
            for (int at = 0; at < text.length; at++) {
                text[at] = (byte) ('a' + (at + i) % 26);
            }
            send("compressed", new Message(topic, "zip", "zip-" + seed + "-" + i, text), i % QUEUE_COUNT);
            Message raw = new Message(topic, "raw", "raw-" + seed + "-" + i, body(LARGE_BYTES[i % LARGE_BYTES.length]));
            SendResult result = rawProducer.send(raw, Cluster.queue(topic, i % QUEUE_COUNT));
            Lines.acknowledged("raw", topic, i % QUEUE_COUNT, result, raw);
        }
    }

    private void delayed(String topic) throws Exception {
        Map<String, String> kinds = new HashMap<>();
        int[] levels = {1, 18, 1, 17, 99};
        for (int i = 0; i < levels.length; i++) {
            Message message = new Message(topic, "later", "delay-" + seed + "-" + i, body(40));
            message.setDelayTimeLevel(levels[i]);
            SendResult result = producer.send(message, Cluster.queue(topic, i % QUEUE_COUNT));
            Lines.acknowledged("delayed", SCHEDULE_TOPIC, Math.min(levels[i], 18) - 1, result, message);
            if (levels[i] == 1) {
                kinds.put(result.getMsgId(), "delay-delivered");
            }
        }
        awaitStored(topic, kinds);
    }

    private void transactions(String topic) throws Exception {
        Map<String, String> committed = new HashMap<>();
        LocalTransactionState[] states = LocalTransactionState.values();
        for (int i = 0; i < 9; i++) {
            LocalTransactionState state = states[i % states.length];
            Message message = new Message(topic, "tx", "tx-" + seed + "-" + i, body(60));
            SendResult result = transactionProducer.sendMessageInTransaction(message, state);
            String offsetMsgId = halfIds.get(result.getMsgId());
            Lines.acknowledged("half-" + state.name().toLowerCase(), HALF_TOPIC, 0, result.getQueueOffset(), offsetMsgId,
                result.getMsgId(), message);
            if (state == LocalTransactionState.COMMIT_MESSAGE) {
                committed.put(result.getMsgId(), "tx-delivered");
            }
        }
        awaitStored(topic, committed);
    }

    /** What the broker moves to its real topic by itself is acknowledged when it can be pulled there. */
    private void awaitStored(String topic, Map<String, String> kindByUniqKey) throws Exception {
        List<MessageExt> stored = new ArrayList<>();
        Cluster.await(kindByUniqKey.size() + " messages in " + topic, () -> {
            stored.clear();
            for (int queueId = 0; queueId < QUEUE_COUNT; queueId++) {
                long from = Math.max(0, cluster.consumer.minOffset(Cluster.queue(topic, queueId)));
                long to = cluster.consumer.maxOffset(Cluster.queue(topic, queueId));
                for (MessageExt message : cluster.pullAll(Cluster.queue(topic, queueId), from, to)) {
                    if (kindByUniqKey.containsKey(message.getProperty("UNIQ_KEY"))) {
                        stored.add(message);
                    }
                }
            }
            return stored.size() == kindByUniqKey.size();
        });
        for (MessageExt message : stored) {
            String uniqKey = message.getProperty("UNIQ_KEY");
            Lines.acknowledged(kindByUniqKey.get(uniqKey), topic, message.getQueueId(), message.getQueueOffset(),
                Lines.offsetMsgId(message), uniqKey, message);
        }
    }

    private void send(String kind, Message message, int queueId) throws Exception {
        SendResult result = producer.send(message, Cluster.queue(message.getTopic(), queueId));
        Lines.acknowledged(kind, message.getTopic(), queueId, result, message);
    }

    private byte[] body(int length) {
        byte[] bytes = new byte[length];
        random.nextBytes(bytes);
        return bytes;
    }

    /** The argument given with the message is the decision. */
    private static final class Decide implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object state) {
            return (LocalTransactionState) state;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }

    /** The result of a transactional send does not say where the half message lies; the answer to the send did. */
    private final class NoteHalfIds implements SendMessageHook {
        @Override
        public String hookName() {
            return "note half ids";
        }

        @Override
        public void sendMessageBefore(SendMessageContext context) {
        }

        @Override
        public void sendMessageAfter(SendMessageContext context) {
            if (context.getSendResult() != null) {
                halfIds.put(context.getSendResult().getMsgId(), context.getSendResult().getOffsetMsgId());
            }
        }
    }
}
