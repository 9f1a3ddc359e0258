import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactional producers against any cluster: {@code Transactions mode nameserver topic}, with NUMBERS "first count". */
public final class Transactions {
    private static final long WAIT_MS_MAX = 90_000;
    private static final String GROUP = "tx-producers";

    private final String nameserver;
    private final String topic;
    private final Map<String, AtomicInteger> received = new ConcurrentHashMap<>();
    private final Map<String, AtomicInteger> checked = new ConcurrentHashMap<>();

    private Transactions(String nameserver, String topic) {
        this.nameserver = nameserver;
        this.topic = topic;
    }

    public static void main(String[] args) {
        java.io.PrintStream out = System.out;
        System.setOut(System.err); // logging of some versions would use it
        int status = 0;
        try {
            Transactions transactions = new Transactions(args[1], args[2]);
            String[] numbers = System.getenv("NUMBERS").split(" ");
            int first = Integer.parseInt(numbers[0]);
            int count = Integer.parseInt(numbers[1]);
            switch (args[0]) {
                case "run":
                    transactions.run(out, count);
                    break;
                case "leave":
                    transactions.leave(out, first, count);
                    break;
                case "settle":
                    transactions.settle(out, count);
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

    /** Decides by a message's kind: the first word of its body. */
    private final class Decide implements TransactionListener {
        private final boolean checksDecide;

        Decide(boolean checksDecide) {
            this.checksDecide = checksDecide;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            switch (kind(message)) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case "throw":
                    throw new IllegalStateException("as a local transaction may");
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            int times = count(checked, message);
            if (!checksDecide) {
                return LocalTransactionState.UNKNOW;
            }
            switch (kind(message)) {
                case "rolllater":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case "slow":
                    return times < 3 ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE;
                default:
                    return LocalTransactionState.COMMIT_MESSAGE;
            }
        }
    }

    private static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static String kind(Message message) {
        return body(message).split(" ")[0];
    }

    private static int count(Map<String, AtomicInteger> counts, Message message) {
        return counts.computeIfAbsent(body(message), name -> new AtomicInteger()).incrementAndGet();
    }

    private TransactionMQProducer producer(String instance, boolean checksDecide) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(GROUP);
        producer.setInstanceName(instance);
        producer.setNamesrvAddr(nameserver);
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new Decide(checksDecide));
        producer.start();
        return producer;
    }

    /** Of a group of its own: it gets all there is, from the first message on. */
    private DefaultMQPushConsumer consumer(String instance) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("tx-consumers-" + System.currentTimeMillis());
        consumer.setInstanceName(instance);
        consumer.setNamesrvAddr(nameserver);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> count(received, message));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static boolean within(BooleanSupplier met) throws InterruptedException {
        long deadline = System.currentTimeMillis() + WAIT_MS_MAX;
        while (!met.getAsBoolean() && System.currentTimeMillis() < deadline) {
            Thread.sleep(50);
        }
        return met.getAsBoolean();
    }

    /** Two producers of a group; the one that is asked need not be the one that sent. */
    private void run(java.io.PrintStream out, int count) throws Exception {
        String[] kinds = {"commit", "rollback", "later", "rolllater", "slow", "throw"};
        TransactionMQProducer producer = producer("one", true);
        TransactionMQProducer other = producer("two", true);
        int wanted = 0;
        for (int number = 0; number < count; number++) {
            String kind = kinds[number % kinds.length];
            Message message = new Message(topic, "TagT", "tx-" + number, (kind + " " + number).getBytes(StandardCharsets.UTF_8));
            TransactionSendResult result = (number % 2 == 0 ? producer : other).sendMessageInTransaction(message, null);
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException("not sent: " + result);
            }
            wanted += kind.startsWith("roll") ? 0 : 1;
        }
        consumer("consumer");
        int all = wanted;
        within(() -> received.size() >= all);
        Thread.sleep(2_000); // what comes now is one too many
        report(out);
        out.println("unwanted " + received.keySet().stream().filter(each -> each.startsWith("roll")).count());
        out.println("asked " + checked.keySet().stream().filter(each -> !each.startsWith("commit")).count());
        out.println("missing " + (wanted - received.size()));
    }

    /** Halves that nobody decides on, asked about at least once. */
    private void leave(java.io.PrintStream out, int first, int count) throws Exception {
        TransactionMQProducer producer = producer("leaver", false);
        for (int number = first; number < first + count; number++) {
            Message message = new Message(topic, "TagT", "tx-" + number, ("left " + number).getBytes(StandardCharsets.UTF_8));
            producer.sendMessageInTransaction(message, null);
        }
        boolean asked = within(() -> checked.size() >= count);
        producer.shutdown();
        out.println("left " + count);
        out.println("asked " + asked);
    }

    /**
     * Commits whatever it is asked about until so many messages were consumed. A producer that sends nothing knows no
     * broker of its own: it shares the consumer's connections.
     */
    private void settle(java.io.PrintStream out, int count) throws Exception {
        producer("settler", true);
        consumer("settler");
        within(() -> received.size() >= count);
        Thread.sleep(3_000); // what comes now is one too many
        report(out);
    }

    private void report(java.io.PrintStream out) {
        out.println("received " + received.size());
        out.println("twice " + received.values().stream().filter(times -> times.get() > 1).count());
    }
}
