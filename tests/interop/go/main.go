// Ordinary producers and consumers of the Go client against any cluster: clients MODE NAMESERVER TOPIC.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	waitMax = 60 * time.Second
	sent    = 52
	queues  = 4
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error", err)
		os.Exit(1)
	}
}

func until(what string, holds func() bool) {
	for end := time.Now().Add(waitMax); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			must(fmt.Errorf("%s did not happen in time", what))
		}
	}
}

// shards sends a message with a number for a sharding key to the queue of that number, and others in turn.
type shards struct{ inTurn producer.QueueSelector }

func (s shards) Select(message *primitive.Message, all []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if number, err := strconv.Atoi(message.GetShardingKey()); err == nil {
		return all[number%len(all)]
	}
	return s.inTurn.Select(message, all, last)
}

// member is a push consumer and what it was given: the queue of each body, and how often the order was broken.
type member struct {
	mu       sync.Mutex
	queueOf  map[string]int
	next     map[int]int64
	disorder int
	consumer rocketmq.PushConsumer
}

func (m *member) take(message *primitive.MessageExt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue := message.Queue.QueueId
	if next, known := m.next[queue]; known && next != message.QueueOffset {
		m.disorder++
	}
	m.next[queue] = message.QueueOffset + 1
	m.queueOf[string(message.Body)] = queue
}

func (m *member) count(prefix string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := 0
	for body := range m.queueOf {
		if strings.HasPrefix(body, prefix) {
			count++
		}
	}
	return count
}

func (m *member) leave() { must(m.consumer.Shutdown()) }

type clients struct {
	nameserver, topic string
	producer          rocketmq.Producer
	members, rounds   int
}

// keys are the credentials of the environment, if there are any.
func keys() primitive.Credentials {
	return primitive.Credentials{AccessKey: os.Getenv("ACCESS_KEY"), SecretKey: os.Getenv("SECRET_KEY")}
}

func newClients(nameserver, topic string) *clients {
	p, err := rocketmq.NewProducer(producer.WithCredentials(keys()), producer.WithGroupName("go-producer"), producer.WithRetry(0), producer.WithInstanceName("producer"),
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{nameserver})),
		producer.WithQueueSelector(shards{producer.NewRoundRobinQueueSelector()}))
	must(err)
	must(p.Start())
	return &clients{nameserver: nameserver, topic: topic, producer: p}
}

func (c *clients) member(group string, expression string, options ...consumer.Option) *member {
	return c.selecting(group, consumer.MessageSelector{Type: consumer.TAG, Expression: expression}, options...)
}

func (c *clients) selecting(group string, selector consumer.MessageSelector, options ...consumer.Option) *member {
	c.members++
	m := &member{queueOf: map[string]int{}, next: map[int]int64{}}
	options = append(options, consumer.WithCredentials(keys()), consumer.WithGroupName(group), consumer.WithInstance(fmt.Sprintf("member-%d", c.members)),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{c.nameserver})),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	made, err := rocketmq.NewPushConsumer(options...)
	must(err)
	must(made.Subscribe(c.topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			m.take(message)
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(made.Start())
	m.consumer = made
	return m
}

func (c *clients) message(body, tag string) *primitive.Message {
	return primitive.NewMessage(c.topic, []byte(body)).WithTag(tag).WithKeys([]string{"key-" + body})
}

func (c *clients) send(messages ...*primitive.Message) {
	result, err := c.producer.SendSync(context.Background(), messages...)
	must(err)
	if result.Status != primitive.SendOK {
		must(fmt.Errorf("answered %s", result))
	}
}

// produce sends 20 at once, 10 asynchronously, 5 one-way, 10 in order, 7 in a batch; ten have TagB. The topic is new.
func (c *clients) produce() {
	for i := 0; i < 20; i++ {
		c.send(c.message(fmt.Sprintf("sync-%d", i), []string{"TagA", "TagB"}[i%2]))
	}
	var waiting sync.WaitGroup
	for i := 0; i < 10; i++ {
		waiting.Add(1)
		answered := func(_ context.Context, _ *primitive.SendResult, err error) { must(err); waiting.Done() }
		must(c.producer.SendAsync(context.Background(), answered, c.message(fmt.Sprintf("async-%d", i), "TagA")))
	}
	waiting.Wait()
	for i := 0; i < 5; i++ {
		must(c.producer.SendOneWay(context.Background(), c.message(fmt.Sprintf("oneway-%d", i), "TagA")))
	}
	for i := 0; i < 10; i++ {
		c.send(c.message(fmt.Sprintf("ordered-%d", i), "TagA").WithShardingKey(strconv.Itoa(i % 2)))
	}
	batch := []*primitive.Message{}
	for i := 0; i < 7; i++ {
		batch = append(batch, c.message(fmt.Sprintf("batch-%d", i), "TagA"))
	}
	c.send(batch...)
	fmt.Println("sent", sent)
}

func (c *clients) consume() {
	all := c.member("go-all", "*")
	tagged := c.member("go-tagged", "TagB || TagC")
	ordered := c.member("go-ordered", "*", consumer.WithConsumerOrder(true))
	copies := []*member{}
	for i := 0; i < 2; i++ {
		copies = append(copies, c.member("go-broadcast", "*", consumer.WithConsumerModel(consumer.BroadCasting)))
	}
	until("consuming", func() bool {
		return all.count("") >= sent && tagged.count("") >= 10 && ordered.count("") >= sent &&
			copies[0].count("") >= sent && copies[1].count("") >= sent
	})
	queuesOfEven := map[int]bool{}
	for i := 0; i < 10; i += 2 {
		queuesOfEven[ordered.queueOf[fmt.Sprintf("ordered-%d", i)]] = true
	}
	fmt.Println("all", all.count(""))
	fmt.Println("tagged", tagged.count(""))
	fmt.Println("ordered", ordered.count(""), len(queuesOfEven))
	fmt.Println("disorder", ordered.disorder)
	fmt.Println("broadcast", copies[0].count(""), copies[1].count(""))
	for _, one := range append(copies, all, tagged, ordered) {
		one.leave()
	}
}

// filter consumes by SQL92 and by tag, of 20 messages with properties.
func (c *clients) filter() {
	for i := 0; i < 20; i++ {
		message := c.message(fmt.Sprintf("filtered-%d", i), map[bool]string{true: "TagA", false: "TagB"}[i%4 == 0])
		message.WithProperty("number", strconv.Itoa(i))
		message.WithProperty("kind", []string{"even", "odd"}[i%2])
		if i >= 15 {
			message.WithProperty("late", "true")
		}
		c.send(message)
	}
	expressions := []string{
		"number > 9 AND kind = 'odd'", "number BETWEEN 3 AND 5 OR late IS NOT NULL", "kind IN ('even') AND number < 4.5",
		"TAGS = 'TagA' AND NOT (kind = 'odd')"}
	found := []*member{}
	for i, expression := range expressions {
		selector := consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}
		found = append(found, c.selecting(fmt.Sprintf("go-sql-%d", i), selector))
	}
	found = append(found, c.member("go-sql-tag", "TagA"))
	expected := []int{5, 8, 3, 5, 5}
	until("filtering", func() bool {
		for i, one := range found {
			if one.count("") < expected[i] {
				return false
			}
		}
		return true
	})
	time.Sleep(500 * time.Millisecond) // whatever comes too much
	for i, one := range found {
		if i < len(expressions) {
			fmt.Printf("sql-%d %d\n", i, one.count(""))
		} else {
			fmt.Println("tag", one.count(""))
		}
		one.leave()
	}
}

// rebalance has two members share the queues; when one leaves, the other takes all of them and what comes after.
func (c *clients) rebalance() {
	one, two := c.member("go-shared", "*"), c.member("go-shared", "*")
	var shares []int
	until("sharing", func() bool { shares = c.round(one, two); return shares[0] == 2 && shares[1] == 2 })
	fmt.Println("shared", shares[0], shares[1])
	left := time.Now()
	two.leave()
	until("taking over", func() bool { return c.round(one)[0] == queues })
	fmt.Println("quick", time.Since(left) < 10*time.Second)
	for i := 0; i < 20; i++ {
		c.send(c.message(fmt.Sprintf("later-%d", i), "TagA"))
	}
	until("later messages", func() bool { return one.count("later-") == 20 })
	fmt.Println("later", one.count("later-"))
	one.leave()
}

// round sends one message to each queue; how many of them each member got, once they got all or a second is over.
func (c *clients) round(members ...*member) []int {
	c.rounds++
	prefix := fmt.Sprintf("round-%d-", c.rounds)
	for i := 0; i < queues; i++ {
		c.send(c.message(prefix+strconv.Itoa(i), "TagA").WithShardingKey(strconv.Itoa(i)))
	}
	counts := make([]int, len(members))
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		total := 0
		for i, one := range members {
			counts[i] = one.count(prefix)
			total += counts[i]
		}
		if total >= queues {
			break
		}
	}
	return counts
}

// resume has a group that was here before: it gets only what is new.
func (c *clients) resume() {
	for i := 0; i < 10; i++ {
		c.send(c.message(fmt.Sprintf("new-%d", i), "TagA"))
	}
	one := c.member("go-all", "*")
	until("new messages", func() bool { return one.count("new-") == 10 })
	fmt.Println("again", one.count("sync-")+one.count("async-")+one.count("batch-"))
	one.leave()
}

func main() {
	all := newClients(os.Args[2], os.Args[3])
	map[string]func(){"produce": all.produce, "consume": all.consume, "filter": all.filter, "rebalance": all.rebalance, "resume": all.resume}[os.Args[1]]()
	must(all.producer.Shutdown())
}
