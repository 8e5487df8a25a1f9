// TLS handshakes that fail, by franz-go: one line of ATTEMPTS is one client, if an argument names it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"kwsniff/captures/samples"
)

// words is told of every connection that could not be made or broke.
type words struct {
	lock sync.Mutex
	said []string
}

func (w *words) say(err error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if err != nil {
		w.said = append(w.said, err.Error())
	}
}

func (w *words) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	w.say(err)
}

func (w *words) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	w.say(err)
}

func attempt(line []string) string {
	folder := os.Getenv("CERTIFICATES") + "/"
	authority, err := os.ReadFile(folder + line[3] + ".pem")
	samples.Check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: os.Getenv("NAME")}
	config.RootCAs.AppendCertsFromPEM(authority)
	if version, ok := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[line[1]]; ok {
		config.MinVersion, config.MaxVersion = version, version
	}
	if line[4] != "-" {
		mine, err := tls.LoadX509KeyPair(folder+line[4]+".pem", folder+line[4]+".key")
		samples.Check(err)
		config.Certificates = []tls.Certificate{mine}
	}
	if line[5] != "-" {
		config.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
	}
	said := &words{}
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Getenv("NAME")+":"+line[2]), kgo.DialTLSConfig(config), kgo.WithHooks(said),
		kgo.RetryBackoffFn(func(int) time.Duration { return 9 * time.Second }))
	samples.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 900*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx); err == nil {
		said.said = []string{"ok"}
	}
	client.Close()
	return strings.Join(said.said, " | ")
}

func main() {
	facts := samples.NewFacts("franz-go", "github.com/twmb/franz-go")
	for _, text := range strings.Split(os.Getenv("ATTEMPTS"), "\n") {
		line := strings.Fields(text)
		if !slices.Contains(os.Args[1:], line[0]+"-"+line[1]) {
			continue
		}
		begin := float64(time.Now().UnixMicro()) / 1e6
		says := attempt(line)
		time.Sleep(250 * time.Millisecond)
		facts.Notes = append(facts.Notes, map[string]any{"case": line[0] + "-" + line[1], "begin": begin,
			"end": float64(time.Now().UnixMicro()) / 1e6, "says": says})
	}
	facts.Save()
}
