import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** The Java client under the same loads: send NAMESERVER TOPIC THREADS SECONDS, consume NAMESERVER TOPIC COUNT BATCH. */
public final class ClientLoad {
    public static void main(String[] words) throws Exception {
        if (words[0].equals("send")) {
            send(words[1], words[2], Integer.parseInt(words[3]), Double.parseDouble(words[4]));
        } else {
            consume(words[1], words[2], Long.parseLong(words[3]), Integer.parseInt(words[4]));
        }
        System.exit(0);
    }

    private static void send(String nameServer, String topic, int threads, double seconds) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-load");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        byte[] body = new byte[128];
        AtomicLong sent = new AtomicLong();
        long began = System.nanoTime(), warm = began + 3_000_000_000L, until = warm + (long) (seconds * 1e9);
        CountDownLatch ended = new CountDownLatch(threads);
        for (int each = 0; each < threads; each++) {
            Thread thread = new Thread(() -> {
                try {
                    while (System.nanoTime() < until) {
                        producer.send(new Message(topic, "TagA", "key", body), 10_000);
                        if (System.nanoTime() >= warm) {
                            sent.incrementAndGet();
                        }
                    }
                } catch (Exception problem) {
                    problem.printStackTrace();
                    System.exit(1);
                }
                ended.countDown();
            });
            thread.start();
        }
        ended.await();
        report(sent.get(), (System.nanoTime() - warm) / 1e9);
    }

    private static void consume(String nameServer, String topic, long count, int batch) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java-load-" + System.nanoTime());
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(batch);
        consumer.subscribe(topic, "*");
        AtomicLong seen = new AtomicLong();
        AtomicLong first = new AtomicLong();
        CountDownLatch ended = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (seen.addAndGet(messages.size()) >= count) {
                ended.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        ended.await();
        report(seen.get(), (System.nanoTime() - first.get()) / 1e9);
    }

    private static void report(long count, double seconds) {
        System.out.println("{\"count\": " + count + ", \"seconds\": " + seconds + "}");
    }
}
