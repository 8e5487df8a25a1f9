// franz-go over plaintext and TLS: what it does is named by the arguments.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"kwsniff/captures/samples"
)

var facts = samples.NewFacts("franz-go", "github.com/twmb/franz-go")

func client(id string, security []kgo.Opt, more ...kgo.Opt) *kgo.Client {
	options := append([]kgo.Opt{kgo.ClientID(id), kgo.FetchMaxWait(300 * time.Millisecond)}, security...)
	made, err := kgo.NewClient(append(options, more...)...)
	samples.Check(err)
	return made
}

func create(ctx context.Context, admin *kadm.Client, id string) {
	_, err := admin.CreateTopic(ctx, 1, 1, nil, samples.Topic)
	var refused *kerr.Error
	if errors.As(err, &refused) {
		facts.Failed(id, "create_topics", refused.Code, refused.Message)
	} else {
		samples.Check(err)
	}
}

func everything(name string, security []kgo.Opt) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	id := "franz-" + name
	admin := kadm.NewClient(client(id+"-admin", security))
	defer admin.Close()
	create(ctx, admin, id+"-admin")
	create(ctx, admin, id+"-admin")

	producer := client(id, security, kgo.ProducerBatchCompression(kgo.NoCompression()))
	for range 3 {
		record := &kgo.Record{Topic: samples.Topic, Value: []byte("a secret")}
		samples.Check(producer.ProduceSync(ctx, record).FirstErr())
		facts.Wrote(id, record.Partition, record.Offset)
	}
	producer.Close()

	consumer := client(id+"-reader", security, kgo.ConsumeTopics(samples.Topic), kgo.ConsumerGroup("readers-"+name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for count := 0; count < 3; {
		fetches := consumer.PollFetches(ctx)
		samples.Check(fetches.Err())
		count += fetches.NumRecords()
		facts.Consumed[samples.Topic] += fetches.NumRecords()
	}
	samples.Check(consumer.CommitUncommittedOffsets(ctx))
	consumer.Close()
	_, err := admin.DeleteTopic(ctx, samples.Topic)
	samples.Check(err)
	time.Sleep(500 * time.Millisecond)
}

func main() {
	encrypted := kgo.SeedBrokers(os.Getenv("BOOTSTRAP"))
	ways := map[string]func() []kgo.Opt{
		"plaintext": func() []kgo.Opt { return []kgo.Opt{kgo.SeedBrokers(os.Getenv("PLAINTEXT"))} },
		"tls1.3": func() []kgo.Opt {
			return []kgo.Opt{encrypted, kgo.DialTLSConfig(samples.TLS(tls.VersionTLS13))}
		},
		"tls1.2": func() []kgo.Opt {
			return []kgo.Opt{encrypted, kgo.DialTLSConfig(samples.TLS(tls.VersionTLS12))}
		},
	}
	for _, name := range os.Args[1:] {
		everything(name, ways[name]())
	}
	facts.Save()
}
