import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and a consumer that live through whatever happens to the brokers: {@code Failover nameserver topic}.
 * Says {@code sent <queue id> <offset> <body>} for each SEND_OK, {@code failed <body> <why>} for anything else and
 * {@code got <queue id> <offset> <body>} for each message. A line of input ends the sending, the end of it all.
 */
public final class Failover {
    private static final int SENDERS = 2;
    private static final int PAUSE_MS = 5;
    private static volatile boolean sending = true;

    private Failover() {
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("failover-readers");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say("got " + message.getQueueId() + " " + message.getQueueOffset() + " " + text(message.getBody()));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = new DefaultMQProducer("failover-writers");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < SENDERS; number++) {
            int sender = number;
            threads.add(new Thread(() -> send(producer, arguments[1], sender)));
            threads.get(number).start();
        }
        consumer.start();
        System.in.read();
        sending = false;
        for (Thread thread : threads) {
            thread.join();
        }
        say("quiet");
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, int sender) {
        for (int count = 0; sending; count++) {
            String body = sender + "-" + count;
            try {
                SendResult result = producer.send(new Message(topic, body.getBytes(StandardCharsets.UTF_8)));
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    say("sent " + result.getMessageQueue().getQueueId() + " " + result.getQueueOffset() + " " + body);
                } else {
                    say("failed " + body + " " + result.getSendStatus());
                }
                Thread.sleep(PAUSE_MS);
            } catch (Exception error) {
                say("failed " + body + " " + String.valueOf(error.getMessage()).split("\n")[0]);
                rest();
            }
        }
    }

    private static void rest() {
        try {
            Thread.sleep(20 * PAUSE_MS);
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static String text(byte[] body) {
        return new String(body, StandardCharsets.UTF_8);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
