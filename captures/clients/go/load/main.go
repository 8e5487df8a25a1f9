// Load: the load of load_client.py by franz-go or sarama: LIBRARY ROLE SECONDS.
package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	random "math/rand"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"kwsniff/captures/samples"
)

var role, address = os.Args[2], os.Getenv("BOOTSTRAP")
var end time.Time

func trust() *tls.Config {
	authority, err := os.ReadFile(os.Getenv("AUTHORITY"))
	samples.Check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &tls.Config{RootCAs: pool}
}

func produce(send func([]byte)) {
	for time.Now().Before(end) {
		many, size := 1+random.Intn(8), 20+random.Intn(380)
		if role == "big" {
			many, size = 190, 1000
		}
		for range many {
			value := make([]byte, size)
			rand.Read(value)
			send(value)
			if role != "big" {
				time.Sleep(300 * time.Microsecond)
			}
		}
		if role == "big" {
			time.Sleep(40 * time.Millisecond)
		} else {
			time.Sleep(time.Duration(random.Intn(16)) * time.Millisecond)
		}
	}
}

func franz() {
	ctx := context.Background()
	options := []kgo.Opt{kgo.SeedBrokers(address), kgo.ClientID("load-" + role), kgo.AllowAutoTopicCreation(), kgo.DialTLSConfig(trust()), kgo.FetchMaxWait(500 * time.Millisecond)}
	switch role {
	case "read":
		client, err := kgo.NewClient(append(options, kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("franz"), kgo.HeartbeatInterval(time.Second),
			kgo.SessionTimeout(6*time.Second), kgo.AutoCommitInterval(time.Second), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))...)
		samples.Check(err)
		limited, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		for time.Now().Before(end) {
			client.PollFetches(limited)
		}
		client.Close()
	case "admin":
		client, err := kgo.NewClient(options...)
		samples.Check(err)
		admin := kadm.NewClient(client)
		for time.Now().Before(end) {
			admin.ListTopics(ctx, "orders")
			admin.ListGroups(ctx)
			admin.DescribeBrokerConfigs(ctx, 1)
			time.Sleep(time.Duration(random.Intn(20)) * time.Millisecond)
		}
		admin.Close()
	default:
		options = append(options, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(100_000), kgo.ProducerLinger(0))
		if role == "big" {
			options = append(options, kgo.ProducerLinger(20*time.Millisecond))
		}
		if role == "none" {
			options = append(options, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
		}
		client, err := kgo.NewClient(options...)
		samples.Check(err)
		produce(func(value []byte) { client.Produce(ctx, &kgo.Record{Topic: "orders", Value: value}, nil) })
		client.Flush(ctx)
		client.Close()
	}
}

type member struct{}

func (member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
	}
	return nil
}

func shopify() {
	config := sarama.NewConfig()
	config.ClientID, config.Version = "load-"+role, sarama.V2_8_0_0
	config.Net.TLS.Enable, config.Net.TLS.Config = true, trust()
	config.Consumer.MaxWaitTime = 500 * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval, config.Consumer.Group.Session.Timeout = time.Second, 6*time.Second
	config.Consumer.Return.Errors, config.Producer.Return.Errors = false, false
	config.Producer.RequiredAcks = sarama.WaitForAll
	if role == "none" {
		config.Producer.RequiredAcks = sarama.NoResponse
	}
	if role == "big" {
		config.Producer.Flush.Frequency, config.Producer.Flush.Bytes = 20*time.Millisecond, 95_000
	}
	brokers := []string{address}
	switch role {
	case "read":
		group, err := sarama.NewConsumerGroup(brokers, "sarama", config)
		samples.Check(err)
		limited, cancel := context.WithDeadline(context.Background(), end)
		defer cancel()
		for time.Now().Before(end) {
			group.Consume(limited, []string{"orders"}, member{})
		}
		group.Close()
	case "admin":
		admin, err := sarama.NewClusterAdmin(brokers, config)
		samples.Check(err)
		for time.Now().Before(end) {
			admin.DescribeTopics([]string{"orders"})
			admin.ListConsumerGroups()
			admin.DescribeConfig(sarama.ConfigResource{Type: sarama.BrokerResource, Name: "1"})
			time.Sleep(time.Duration(random.Intn(20)) * time.Millisecond)
		}
		admin.Close()
	default:
		producer, err := sarama.NewAsyncProducer(brokers, config)
		samples.Check(err)
		produce(func(value []byte) {
			producer.Input() <- &sarama.ProducerMessage{Topic: "orders", Value: sarama.ByteEncoder(value)}
		})
		producer.Close()
	}
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	samples.Check(err)
	end = time.Now().Add(time.Duration(seconds * float64(time.Second)))
	map[string]func(){"franz-go": franz, "sarama": shopify}[os.Args[1]]()
}
