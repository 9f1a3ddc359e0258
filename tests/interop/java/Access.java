import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/** A client with credentials: NameServers, topic, group, seconds to consume, then access key and secret, or nothing. */
public final class Access {
    private Access() {
    }

    public static void main(String[] args) throws Exception {
        String names = args[0];
        String topic = args[1];
        String group = args[2];
        int seconds = Integer.parseInt(args[3]);
        RPCHook hook = args.length > 5 ? new AclClientRPCHook(new SessionCredentials(args[4], args[5])) : null;
        DefaultMQProducer producer = new DefaultMQProducer("access-producer", hook);
        producer.setNamesrvAddr(names);
        producer.setInstanceName("producer");
        producer.setSendMsgTimeout(5000);
        producer.start();
        System.out.println("single=" + sent(() -> producer.send(new Message(topic, "tag", "key", new byte[10])).getSendStatus()));
        System.out.println("batch=" + sent(() -> {
            List<Message> batch = new ArrayList<>();
            for (int number = 0; number < 3; number++) {
                batch.add(new Message(topic, "tag", new byte[10]));
            }
            return producer.send(batch).getSendStatus();
        }));
        AtomicInteger count = new AtomicInteger();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName("consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            count.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int turn = 0; turn < seconds * 10 && count.get() < 4; turn++) {
            Thread.sleep(100);
        }
        System.out.println("consumed=" + count.get());
        System.out.flush();
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    private interface Send {
        SendStatus run() throws Exception;
    }

    private static String sent(Send send) {
        try {
            return send.run().name();
        } catch (MQBrokerException error) {
            return error.getResponseCode() + " " + error.getErrorMessage();
        } catch (Exception error) {
            Throwable cause = error.getCause();
            return cause instanceof MQBrokerException
                ? ((MQBrokerException) cause).getResponseCode() + " " + ((MQBrokerException) cause).getErrorMessage()
                : error.toString().replace('\n', ' ');
        }
    }
}
