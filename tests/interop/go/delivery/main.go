// Delays, retries and dead letters with the Go client: delivery run NAMESERVER TOPIC, with levels of a second.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const group = "go-delivery"

var (
	lock  sync.Mutex
	due   = map[string]time.Time{}
	tries = map[string]int{}
	early int
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func count(prefix string) int {
	lock.Lock()
	defer lock.Unlock()
	total := 0
	for body, times := range tries {
		if strings.HasPrefix(body, prefix) {
			total += times
		}
	}
	return total
}

func listen(names []string, name, topic string, judge func(string) consumer.ConsumeResult) rocketmq.PushConsumer {
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(names), consumer.WithGroupName(name), consumer.WithMaxReconsumeTimes(2),
		consumer.WithInstance(name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	must(err)
	must(made.Subscribe(topic, consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			result := consumer.ConsumeSuccess
			for _, message := range messages {
				body := string(message.Body)
				lock.Lock()
				tries[name+body]++
				if time.Now().Before(due[body]) {
					early++
				}
				lock.Unlock()
				if judge(body) != consumer.ConsumeSuccess {
					result = consumer.ConsumeRetryLater
				}
			}
			return result, nil
		}))
	must(made.Start())
	return made
}

func main() {
	names, topic := []string{os.Args[2]}, os.Args[3]
	sender, err := rocketmq.NewProducer(producer.WithNameServer(names), producer.WithGroupName(group+"-producer"))
	must(err)
	must(sender.Start())
	for number := 0; number < 5; number++ {
		for _, kind := range []string{"delayed", "bad"} {
			body := fmt.Sprintf("%s-%d", kind, number)
			message := primitive.NewMessage(topic, []byte(body))
			lock.Lock()
			due[body] = time.Now()
			if kind == "delayed" {
				message.WithDelayTimeLevel(1)
				due[body] = time.UnixMilli(time.Now().UnixMilli()).Add(time.Second)
			}
			lock.Unlock()
			_, err := sender.SendSync(context.Background(), message)
			must(err)
		}
	}
	worker := listen(names, group, topic, func(body string) consumer.ConsumeResult {
		if strings.HasPrefix(body, "bad") {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	})
	until := time.Now().Add(60 * time.Second)
	for time.Now().Before(until) && (count(group+"bad") < 15 || count(group+"delayed") < 5) {
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(1500 * time.Millisecond)
	reader := listen(names, "go-dead-letters", "%DLQ%"+group, func(string) consumer.ConsumeResult { return consumer.ConsumeSuccess })
	for time.Now().Before(until) && count("go-dead-letters") < 5 {
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Printf("delayed %d\ntries %d\nearly %d\ndead %d\n",
		count(group+"delayed"), count(group+"bad"), early, count("go-dead-letters"))
	_ = reader.Shutdown()
	_ = worker.Shutdown()
	_ = sender.Shutdown()
}
