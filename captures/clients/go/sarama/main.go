// sarama over plaintext, over TLS 1.3, and over TLS 1.2 with a password.
package main

import (
	"crypto/tls"
	"errors"
	"os"
	"time"

	"github.com/IBM/sarama"
	"kwsniff/captures/samples"
)

var facts = samples.NewFacts("sarama", "github.com/IBM/sarama")

func settings(id string, secure func(*sarama.Config)) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = id
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.MaxWaitTime = 300 * time.Millisecond
	secure(config)
	return config
}

func create(admin sarama.ClusterAdmin, id string) {
	err := admin.CreateTopic(samples.Topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	var refused *sarama.TopicError
	if errors.As(err, &refused) {
		facts.Failed(id, "create_topics", int16(refused.Err), refused.Err.Error())
	} else {
		samples.Check(err)
	}
}

func everything(name, address string, secure func(*sarama.Config)) {
	brokers, id := []string{address}, "sarama-"+name
	admin, err := sarama.NewClusterAdmin(brokers, settings(id+"-admin", secure))
	samples.Check(err)
	create(admin, id+"-admin")
	create(admin, id+"-admin")

	producer, err := sarama.NewSyncProducer(brokers, settings(id, secure))
	samples.Check(err)
	for range 3 {
		partition, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: samples.Topic,
			Value: sarama.StringEncoder("a secret")})
		samples.Check(err)
		facts.Wrote(id, partition, offset)
	}
	samples.Check(producer.Close())

	consumer, err := sarama.NewConsumer(brokers, settings(id+"-reader", secure))
	samples.Check(err)
	reading, err := consumer.ConsumePartition(samples.Topic, 0, sarama.OffsetOldest)
	samples.Check(err)
	for range 3 {
		<-reading.Messages()
		facts.Consumed[samples.Topic]++
	}
	samples.Check(reading.Close())
	samples.Check(consumer.Close())
	samples.Check(admin.DeleteTopic(samples.Topic))
	samples.Check(admin.Close())
	time.Sleep(500 * time.Millisecond)
}

func encrypted(version uint16) func(*sarama.Config) {
	trust := samples.TLS(version)
	return func(config *sarama.Config) {
		config.Net.TLS.Enable = true
		config.Net.TLS.Config = trust
	}
}

func main() {
	everything("plaintext", os.Getenv("PLAINTEXT"), func(*sarama.Config) {})
	everything("tls1.3", os.Getenv("BOOTSTRAP"), encrypted(tls.VersionTLS13))
	older := encrypted(tls.VersionTLS12)
	everything("tls1.2-plain", os.Getenv("SASL_SSL"), func(config *sarama.Config) {
		older(config)
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLTypePlaintext
		config.Net.SASL.User = os.Getenv("SASL_USER")
		config.Net.SASL.Password = os.Getenv("SASL_PASSWORD")
	})
	facts.Save()
}
