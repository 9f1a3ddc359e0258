import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * One member of a group until its input ends: {@code Member nameserver topic group orderly|concurrent}.
 * Says {@code owned <queue ids>} for each line of input and {@code got <queue id> <body>} for each message.
 */
public final class Member {
    private Member() {
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        if (arguments[3].equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                say(messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                say(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        while (System.in.read() >= 0) {
            String owned = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()
                .stream().filter(queue -> queue.getTopic().equals(topic)).map(queue -> "" + queue.getQueueId())
                .sorted().collect(Collectors.joining(" "));
            say("owned " + owned);
        }
        consumer.shutdown();
        System.exit(0);
    }

    private static void say(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            say("got " + message.getQueueId() + " " + new String(message.getBody(), StandardCharsets.UTF_8));
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
