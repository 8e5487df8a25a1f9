// A producer and a consumer in a group that keep their connections for some seconds, by one of three Go libraries.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "orders"

type produced struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

type facts struct {
	Produced []produced `json:"produced"`
	lock     sync.Mutex
}

func (f *facts) sent(partition int32, offset int64) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.Produced = append(f.Produced, produced{partition, offset})
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func franz(ctx context.Context, bootstrap string, f *facts) {
	common := []kgo.Opt{kgo.SeedBrokers(bootstrap)}
	producer, err := kgo.NewClient(append(common, kgo.ClientID("franz-producer"), kgo.DefaultProduceTopic(topic),
		kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(kgo.SnappyCompression()))...)
	must(err)
	defer producer.Close()
	opened := producer.ProduceSync(ctx, kgo.StringRecord("first"))
	must(opened.FirstErr())
	f.sent(opened[0].Record.Partition, opened[0].Record.Offset)
	consumer, err := kgo.NewClient(append(common, kgo.ClientID("franz-consumer"), kgo.ConsumerGroup("franz-group"),
		kgo.ConsumeTopics(topic), kgo.FetchMaxWait(300*time.Millisecond), kgo.AutoCommitInterval(time.Second))...)
	must(err)
	defer consumer.Close()
	go func() {
		for ctx.Err() == nil {
			consumer.PollFetches(ctx).EachRecord(func(*kgo.Record) {})
		}
	}()
	for number := 0; ctx.Err() == nil; number++ {
		done := producer.ProduceSync(context.Background(), kgo.StringRecord(fmt.Sprintf("franz %d", number)))
		must(done.FirstErr())
		f.sent(done[0].Record.Partition, done[0].Record.Offset)
		time.Sleep(60 * time.Millisecond)
	}
}

type handler struct{}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
	}
	return nil
}

func saramaClients(ctx context.Context, bootstrap string, f *facts) {
	config := sarama.NewConfig()
	config.ClientID = "sarama-producer"
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Compression = sarama.CompressionGZIP
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	must(err)
	defer producer.Close()
	send := func(text string) {
		partition, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(text)})
		must(err)
		f.sent(partition, offset)
	}
	send("first")
	reading := sarama.NewConfig()
	reading.ClientID = "sarama-consumer"
	reading.Consumer.Offsets.Initial = sarama.OffsetOldest
	reading.Consumer.MaxWaitTime = 300 * time.Millisecond
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, "sarama-group", reading)
	must(err)
	defer group.Close()
	go func() {
		for ctx.Err() == nil {
			_ = group.Consume(ctx, []string{topic}, handler{})
		}
	}()
	for number := 0; ctx.Err() == nil; number++ {
		send(fmt.Sprintf("sarama %d", number))
		time.Sleep(60 * time.Millisecond)
	}
}

func kafkaGo(ctx context.Context, bootstrap string, f *facts) {
	writer := &kafka.Writer{Addr: kafka.TCP(bootstrap), Topic: topic, BatchTimeout: 5 * time.Millisecond,
		RequiredAcks: kafka.RequireAll, Compression: kafka.Lz4, AllowAutoTopicCreation: true,
		Transport: &kafka.Transport{ClientID: "kafka-go-writer"},
		Completion: func(messages []kafka.Message, err error) {
			for _, message := range messages {
				if err == nil {
					f.sent(int32(message.Partition), message.Offset)
				}
			}
		}}
	defer writer.Close()
	for number := 0; number < 20; number++ {
		if err := writer.WriteMessages(ctx, kafka.Message{Value: []byte("first")}); err == nil {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, GroupID: "kafka-go-group", Topic: topic,
		MaxWait: 300 * time.Millisecond, CommitInterval: time.Second, Dialer: &kafka.Dialer{ClientID: "kafka-go-reader", Timeout: 5 * time.Second}})
	defer reader.Close()
	go func() {
		for {
			if _, err := reader.ReadMessage(ctx); err != nil {
				return
			}
		}
	}()
	for number := 0; ctx.Err() == nil; number++ {
		must(writer.WriteMessages(context.Background(), kafka.Message{Value: []byte(fmt.Sprintf("kafka-go %d", number))}))
		time.Sleep(60 * time.Millisecond)
	}
}

func main() {
	bootstrap := os.Getenv("BOOTSTRAP")
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	f := &facts{Produced: []produced{}}
	run := map[string]func(context.Context, string, *facts){"franz-go": franz, "sarama": saramaClients, "kafka-go": kafkaGo}
	run[os.Args[1]](ctx, bootstrap, f)
	text, err := json.Marshal(f)
	must(err)
	must(os.WriteFile(os.Getenv("FACTS"), text, 0o644))
}
