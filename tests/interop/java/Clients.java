import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Ordinary producers and consumers against any cluster: {@code Clients mode nameserver topic}. */
public final class Clients {
    private static final long WAIT_MS_MAX = 60_000;
    private static final int SENT = 95;

    private final String nameserver;
    private final String topic;
    private final AtomicInteger instances = new AtomicInteger();

    private Clients(String nameserver, String topic) {
        this.nameserver = nameserver;
        this.topic = topic;
    }

    public static void main(String[] args) {
        java.io.PrintStream out = System.out;
        System.setOut(System.err); // logging of some versions would use it
        int status = 0;
        try {
            Clients clients = new Clients(args[1], args[2]);
            switch (args[0]) {
                case "produce":
                    clients.produce(out);
                    break;
                case "consume":
                    clients.consume(out);
                    break;
                case "filter":
                    clients.filter(out);
                    break;
                case "rebalance":
                    clients.rebalance(out);
                    break;
                case "resume":
                    clients.resume(out);
                    break;
                case "stay":
                    clients.stay(out);
                    break;
                default:
                    throw new IllegalArgumentException(args[0]);
            }
        } catch (Throwable problem) {
            problem.printStackTrace();
            status = 1;
        }
        out.flush();
        System.exit(status); // client threads would keep the process alive
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("clients-producer");
        producer.setInstanceName("producer-" + instances.incrementAndGet());
        producer.setNamesrvAddr(nameserver);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    private Message message(String body, String tag) {
        return new Message(topic, tag, "key-" + body, body.getBytes(StandardCharsets.UTF_8));
    }

    /** 40 at once, 20 asynchronous, 10 one-way, 15 in a batch, 10 in order; 35 have TagB. The topic is new. */
    private void produce(java.io.PrintStream out) throws Exception {
        DefaultMQProducer producer = producer();
        for (int i = 0; i < 40; i++) {
            require(producer.send(message("sync-" + i, i % 2 == 0 ? "TagA" : "TagB")));
        }
        CountDownLatch answered = new CountDownLatch(20);
        for (int i = 0; i < 20; i++) {
            producer.send(message("async-" + i, i % 2 == 0 ? "TagA" : "TagB"), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answered.countDown();
                }

                @Override
                public void onException(Throwable problem) {
                    problem.printStackTrace();
                }
            });
        }
        if (!answered.await(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException("asynchronous sends were not answered");
        }
        for (int i = 0; i < 10; i++) {
            producer.sendOneway(message("oneway-" + i, i % 2 == 0 ? "TagA" : "TagB"));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 15; i++) {
            batch.add(message("batch-" + i, "TagA"));
        }
        require(producer.send(batch));
        for (int i = 0; i < 10; i++) {
            require(producer.send(message("ordered-" + i, "TagA"), (queues, sent, number) -> queues.get((Integer) number), i % 2));
        }
        out.println("sent " + SENT);
        Thread.sleep(500); // one-way messages are on their way
        producer.shutdown();
    }

    private static void require(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("answered " + result);
        }
    }

    private DefaultMQPushConsumer consumer(String group, String expression) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setInstanceName("consumer-" + instances.incrementAndGet());
        consumer.setNamesrvAddr(nameserver);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, expression);
        return consumer;
    }

    private static MessageListenerConcurrently into(Set<String> bodies) {
        return (messages, context) -> {
            for (MessageExt message : messages) {
                bodies.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    private void consume(java.io.PrintStream out) throws Exception {
        Set<String> all = new ConcurrentSkipListSet<>();
        Set<String> tagged = new ConcurrentSkipListSet<>();
        Set<String> ordered = new ConcurrentSkipListSet<>();
        Set<Integer> queuesOfEven = new ConcurrentSkipListSet<>();
        Map<Integer, Long> last = new ConcurrentHashMap<>();
        AtomicInteger disorder = new AtomicInteger();
        List<Set<String>> copies = new ArrayList<>();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();

        DefaultMQPushConsumer concurrent = consumer("clients-all", "*");
        concurrent.registerMessageListener(into(all));
        consumers.add(concurrent);
        DefaultMQPushConsumer onlyB = consumer("clients-tagged", "TagB || TagC");
        onlyB.registerMessageListener(into(tagged));
        consumers.add(onlyB);
        DefaultMQPushConsumer orderly = consumer("clients-orderly", "*");
        orderly.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                Long before = last.put(message.getQueueId(), message.getQueueOffset());
                if (before != null && message.getQueueOffset() != before + 1) {
                    disorder.incrementAndGet();
                }
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                ordered.add(body);
                if (body.matches("ordered-[02468]")) {
                    queuesOfEven.add(message.getQueueId());
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumers.add(orderly);
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer broadcast = consumer("clients-broadcast", "*");
            setBroadcasting(broadcast);
            copies.add(new ConcurrentSkipListSet<>());
            broadcast.registerMessageListener(into(copies.get(i)));
            consumers.add(broadcast);
        }
        for (DefaultMQPushConsumer each : consumers) {
            each.start();
        }
        await(() -> all.size() >= SENT && tagged.size() >= 35 && ordered.size() >= SENT && copies.get(0).size() >= SENT
            && copies.get(1).size() >= SENT);
        out.println("all " + all.size());
        out.println("tagged " + tagged.size());
        out.println("ordered " + ordered.size() + " " + queuesOfEven.size());
        out.println("disorder " + disorder.get());
        out.println("broadcast " + copies.get(0).size() + " " + copies.get(1).size());
        for (DefaultMQPushConsumer each : consumers) {
            each.shutdown();
        }
        out.println("lite " + litePull());
    }

    /** The enumeration moved to another package in 5.x. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void setBroadcasting(DefaultMQPushConsumer consumer) throws Exception {
        for (java.lang.reflect.Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, Enum.valueOf((Class) method.getParameterTypes()[0], "BROADCASTING"));
            }
        }
    }

    private int litePull() throws Exception {
        DefaultLitePullConsumer lite = new DefaultLitePullConsumer("clients-lite");
        lite.setInstanceName("lite-" + instances.incrementAndGet());
        lite.setNamesrvAddr(nameserver);
        lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        lite.subscribe(topic, "*");
        lite.start();
        Set<String> bodies = new TreeSet<>();
        long deadline = System.currentTimeMillis() + WAIT_MS_MAX;
        while (bodies.size() < SENT && System.currentTimeMillis() < deadline) {
            for (MessageExt message : lite.poll(1_000)) {
                bodies.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
        }
        lite.shutdown();
        return bodies.size();
    }

    /** By SQL92 and by tag, of 20 messages with properties; a bad expression is refused by the broker. */
    private void filter(java.io.PrintStream out) throws Exception {
        DefaultMQProducer producer = producer();
        for (int i = 0; i < 20; i++) {
            Message message = message("filtered-" + i, i % 4 == 0 ? "TagA" : "TagB");
            message.putUserProperty("number", "" + i);
            message.putUserProperty("kind", i % 2 == 1 ? "odd" : "even");
            if (i >= 15) {
                message.putUserProperty("late", "true");
            }
            require(producer.send(message));
        }
        String[] expressions = {
            "number > 9 AND kind = 'odd'", "number BETWEEN 3 AND 5 OR late IS NOT NULL", "kind IN ('even') AND number < 4.5",
            "TAGS = 'TagA' AND NOT (kind = 'odd')"};
        List<Set<String>> found = new ArrayList<>();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < expressions.length; i++) {
            DefaultMQPushConsumer consumer = consumer("clients-sql-" + i, "*");
            consumer.subscribe(topic, MessageSelector.bySql(expressions[i]));
            found.add(new ConcurrentSkipListSet<>());
            consumer.registerMessageListener(into(found.get(i)));
            consumers.add(consumer);
        }
        DefaultMQPushConsumer tagged = consumer("clients-sql-tag", "TagA");
        found.add(new ConcurrentSkipListSet<>());
        tagged.registerMessageListener(into(found.get(expressions.length)));
        consumers.add(tagged);
        for (DefaultMQPushConsumer each : consumers) {
            each.start();
        }
        int[] expected = {5, 8, 3, 5, 5};
        await(() -> {
            for (int i = 0; i < expected.length; i++) {
                if (found.get(i).size() < expected[i]) {
                    return false;
                }
            }
            return true;
        });
        Thread.sleep(500); // whatever comes too much
        for (int i = 0; i < expected.length; i++) {
            out.println((i < expressions.length ? "sql-" + i : "tag") + " " + found.get(i).size());
        }
        DefaultMQPushConsumer bad = consumer("clients-sql-bad", "*");
        bad.subscribe(topic, MessageSelector.bySql("number > "));
        bad.registerMessageListener(into(new ConcurrentSkipListSet<>()));
        try {
            bad.start();
            out.println("bad taken");
        } catch (MQClientException refused) {
            out.println("bad " + refused.getResponseCode());
        }
        for (DefaultMQPushConsumer each : consumers) {
            each.shutdown();
        }
        producer.shutdown();
    }

    /** Two members share the queues; when one leaves, the other takes all of them and what comes after. */
    private void rebalance(java.io.PrintStream out) throws Exception {
        Set<String> first = new ConcurrentSkipListSet<>();
        Set<String> second = new ConcurrentSkipListSet<>();
        DefaultMQPushConsumer one = consumer("clients-shared", "*");
        one.registerMessageListener(into(first));
        DefaultMQPushConsumer two = consumer("clients-shared", "*");
        two.registerMessageListener(into(second));
        one.start();
        two.start();
        await(() -> owned(one) > 0 && owned(two) > 0 && owned(one) + owned(two) == 4);
        out.println("shared " + owned(one) + " " + owned(two));
        await(() -> union(first, second) >= SENT);
        long left = System.currentTimeMillis();
        two.shutdown();
        await(() -> owned(one) == 4);
        long tookMs = System.currentTimeMillis() - left;
        out.println("quick " + (tookMs < 10_000));
        DefaultMQProducer producer = producer();
        for (int i = 0; i < 20; i++) {
            require(producer.send(message("later-" + i, "TagA")));
        }
        await(() -> first.stream().filter(body -> body.startsWith("later-")).count() == 20);
        out.println("later 20");
        producer.shutdown();
        one.shutdown();
    }

    private int owned(DefaultMQPushConsumer consumer) {
        return (int) consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).count();
    }

    private static int union(Set<String> first, Set<String> second) {
        Map<String, Boolean> both = new HashMap<>();
        first.forEach(body -> both.put(body, true));
        second.forEach(body -> both.put(body, true));
        return both.size();
    }

    /** A group that was here before gets only what is new. */
    private void resume(java.io.PrintStream out) throws Exception {
        DefaultMQProducer producer = producer();
        for (int i = 0; i < 10; i++) {
            require(producer.send(message("new-" + i, "TagA")));
        }
        producer.shutdown();
        Set<String> bodies = new ConcurrentSkipListSet<>();
        DefaultMQPushConsumer consumer = consumer("clients-all", "*");
        consumer.registerMessageListener(into(bodies));
        consumer.start();
        await(() -> bodies.stream().filter(body -> body.startsWith("new-")).count() == 10);
        out.println("again " + bodies.stream().filter(body -> !body.startsWith("new-") && !body.startsWith("later-")).count());
        consumer.shutdown();
    }

    /** A producer and a consumer at work until the input ends; for each line of it, how many deliveries there were. */
    private void stay(java.io.PrintStream out) throws Exception {
        DefaultMQProducer producer = producer();
        producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        AtomicInteger deliveries = new AtomicInteger();
        DefaultMQPushConsumer consumer = consumer("clients-live", "TagA || TagB");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            deliveries.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        require(producer.send(message("stay", "TagA")));
        await(() -> owned(consumer) > 0 && deliveries.get() > 0);
        producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        out.println("ready");
        java.io.BufferedReader lines = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        while (lines.readLine() != null) {
            out.println(deliveries.get());
        }
        consumer.shutdown();
        producer.shutdown();
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(Condition condition) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS_MAX;
        while (!condition.holds()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("it did not happen in time");
            }
            Thread.sleep(20);
        }
    }
}
