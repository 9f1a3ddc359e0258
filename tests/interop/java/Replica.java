import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * An ordinary consumer that goes on whatever happens to brokers: {@code Replica consume nameserver topic}. Prints how
 * many different messages it has seen, and ends when it has seen as many as the environment's COUNT says.
 */
public class Replica {
    public static void main(String[] args) throws Exception {
        int wanted = Integer.parseInt(System.getenv("COUNT"));
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("replica-readers");
        consumer.setNamesrvAddr(args[1]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(2_000);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setPullThresholdForQueue(16);
        consumer.setPullBatchSize(8);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener(new MessageListenerConcurrently() {
            @Override
            public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> found, ConsumeConcurrentlyContext context) {
                for (MessageExt message : found) {
                    seen.add(new String(message.getBody()).split(" ")[0]);
                }
                pause(20);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
        });
        consumer.start();
        long deadline = System.currentTimeMillis() + 120_000;
        while (seen.size() < wanted && System.currentTimeMillis() < deadline) {
            System.out.println("seen " + seen.size());
            System.out.flush();
            pause(200);
        }
        System.out.println("seen " + seen.size());
        System.out.flush();
        System.exit(seen.size() == wanted ? 0 : 1);
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
