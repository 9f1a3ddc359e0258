import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Delays, timers, retries and dead letters: {@code Delivery MODE NAMESERVER TOPIC}, with levels of a second or two.
 * run: everything; leave: ten delayed messages sent; timers: ten with a timer of 20 seconds; settle: ten messages
 * received, those of an earlier leave.
 */
public final class Delivery {
    private static final int SETTLE_MS = 40_000; // clients look for new routes every 30 seconds
    private static final int PROMPT_MS = 15_000; // a client without the route of its retry topic looks again after 20 s
    private static final Map<String, Long> DUE = new ConcurrentHashMap<>();
    private static final Map<String, AtomicInteger> TRIES = new ConcurrentHashMap<>();
    private static final Map<String, Long> FIRST = new ConcurrentHashMap<>();
    private static final AtomicInteger PROMPT = new AtomicInteger();
    private static final AtomicInteger EARLY = new AtomicInteger();
    private static final PrintStream OUT = System.out;

    private Delivery() {
    }

    public static void main(String[] arguments) {
        System.setOut(System.err);
        int status = 0;
        try {
            play(arguments[0], arguments[1], arguments[2]);
        } catch (Throwable problem) {
            problem.printStackTrace();
            status = 1;
        }
        System.exit(status); // client threads would keep the process alive
    }

    private static void play(String mode, String names, String topic) throws Exception {
        switch (mode) {
            case "run":
                run(names, topic);
                break;
            case "leave":
                leave(names, topic, 2, null);
                break;
            case "timers":
                leave(names, topic, 0, "20000");
                break;
            default:
                settle(names, topic);
        }
    }

    private static void run(String names, String topic) throws Exception {
        DefaultMQProducer producer = producer(names);
        for (int number = 0; number < 5; number++) {
            send(producer, topic, "delayed-" + number, 1_000, 1, null);
            send(producer, topic, "timed-" + number, 700 + 300 * number, 0, "" + (700 + 300 * number));
            send(producer, topic, "bad-" + number, 0, 0, null);
        }
        consumer(names, "delivery", topic, message -> !message.startsWith("bad"));
        Map<String, String> dead = new ConcurrentHashMap<>();
        long until = System.currentTimeMillis() + SETTLE_MS;
        while (System.currentTimeMillis() < until && (TRIES.size() < 15 || tries("bad") < 15)) {
            Thread.sleep(100);
        }
        until = System.currentTimeMillis() + SETTLE_MS;
        while (System.currentTimeMillis() < until && !isRouted(producer, "%DLQ%delivery")) {
            Thread.sleep(100); // a consumer that asks before would ask again after half a minute only
        }
        DefaultMQPushConsumer reader = new DefaultMQPushConsumer("dead-letter-reader");
        reader.setNamesrvAddr(names);
        reader.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        reader.subscribe("%DLQ%delivery", "*");
        reader.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                dead.put(body(message), message.getProperty("RETRY_TOPIC"));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        reader.start();
        while (System.currentTimeMillis() < until && dead.size() < 5) {
            Thread.sleep(100);
        }
        Thread.sleep(1_500);
        OUT.println("delayed " + tries("delayed"));
        OUT.println("timed " + tries("timed"));
        OUT.println("tries " + tries("bad"));
        OUT.println("prompt " + PROMPT.get());
        OUT.println("early " + EARLY.get());
        OUT.println("dead " + dead.values().stream().filter(topic::equals).count());
    }

    private static boolean isRouted(DefaultMQProducer producer, String topic) {
        try {
            return !producer.fetchPublishMessageQueues(topic).isEmpty();
        } catch (MQClientException notYet) {
            return false;
        }
    }

    private static void leave(String names, String topic, int level, String timer) throws Exception {
        DefaultMQProducer producer = producer(names);
        for (int number = 0; number < 10; number++) {
            send(producer, topic, System.getenv("NUMBERS") + "-" + number, 0, level, timer);
        }
        OUT.println("left 10");
    }

    private static void settle(String names, String topic) throws Exception {
        String prefix = System.getenv("NUMBERS") + "-";
        consumer(names, "settle", topic, message -> true);
        long until = System.currentTimeMillis() + SETTLE_MS;
        while (System.currentTimeMillis() < until && tries(prefix) < 10) {
            Thread.sleep(100);
        }
        Thread.sleep(1_000);
        OUT.println("received " + tries(prefix));
    }

    private static DefaultMQProducer producer(String names) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("delivery-producer");
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    private static void send(DefaultMQProducer producer, String topic, String body, long wait, int level, String timer)
        throws Exception {
        Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        if (level > 0) {
            message.setDelayTimeLevel(level);
        }
        if (timer != null) {
            MessageAccessor.putProperty(message, "TIMER_DELAY_MS", timer);
        }
        DUE.put(body, System.currentTimeMillis() + wait);
        if (producer.send(message).getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(body + " was not stored");
        }
    }

    private interface Judge {
        boolean isGood(String body);
    }

    private static void consumer(String names, String group, String topic, Judge judge) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setMaxReconsumeTimes(2);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean good = true;
            for (MessageExt message : messages) {
                int tries = TRIES.computeIfAbsent(body(message), name -> new AtomicInteger()).incrementAndGet();
                long first = FIRST.computeIfAbsent(body(message), name -> System.currentTimeMillis());
                if (tries == 2 && System.currentTimeMillis() < first + PROMPT_MS) {
                    PROMPT.incrementAndGet();
                }
                if (System.currentTimeMillis() < DUE.getOrDefault(body(message), 0L)) {
                    EARLY.incrementAndGet();
                }
                good &= judge.isGood(body(message));
            }
            return good ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
    }

    private static int tries(String prefix) {
        return TRIES.entrySet().stream().filter(entry -> entry.getKey().startsWith(prefix))
            .mapToInt(entry -> entry.getValue().get()).sum();
    }

    private static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
