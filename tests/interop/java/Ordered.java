import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * One member of a group that consumes in order, until its input ends or it is killed: {@code Ordered nameserver topic group}.
 * Says {@code began <queue id> <offset> <body> <ms>} and, some ms later, {@code ended} with the same: so the test sees when
 * it had which queue.
 */
public final class Ordered {
    private static final long WORK_MS = 20;

    private Ordered() {
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setInstanceName("member-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                say("began", message);
                try {
                    Thread.sleep(WORK_MS);
                } catch (InterruptedException stopped) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                say("ended", message);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        while (System.in.read() >= 0) {
            Thread.sleep(1);
        }
        consumer.shutdown();
        System.exit(0);
    }

    private static synchronized void say(String what, MessageExt message) {
        System.out.println(what + " " + message.getQueueId() + " " + message.getQueueOffset() + " "
            + new String(message.getBody(), StandardCharsets.UTF_8) + " " + System.currentTimeMillis());
        System.out.flush();
    }
}
