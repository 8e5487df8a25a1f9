// Package samples is what Go clients of the TLS samples have in common: their TLS settings, and what they tell.
package samples

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log"
	"os"
	"runtime/debug"
)

// Topic is written and read by every client.
const Topic = "orders"

// Facts is what a client says it did.
type Facts struct {
	Client   string           `json:"client"`
	Version  string           `json:"version"`
	Produced []map[string]any `json:"produced"`
	Consumed map[string]int   `json:"consumed"`
	Errors   []map[string]any `json:"errors"`
	Notes    []map[string]any `json:"notes"`
}

// NewFacts begins the account of a client whose library has this module path.
func NewFacts(client, path string) *Facts {
	facts := &Facts{Client: client, Produced: []map[string]any{}, Consumed: map[string]int{}, Errors: []map[string]any{}, Notes: []map[string]any{}}
	build, _ := debug.ReadBuildInfo()
	for _, module := range build.Deps {
		if module.Path == path {
			facts.Version = module.Version[1:]
		}
	}
	return facts
}

// Wrote notes a record that was acknowledged.
func (facts *Facts) Wrote(client string, partition int32, offset int64) {
	facts.Produced = append(facts.Produced, map[string]any{"client_id": client, "topic": Topic, "partition": partition,
		"offset": offset, "acks": "all", "codec": "none"})
}

// Failed notes an error that the broker gave.
func (facts *Facts) Failed(client, what string, code int16, name string) {
	facts.Errors = append(facts.Errors, map[string]any{"client_id": client, "what": what, "code": code, "name": name})
}

// Save writes them to the file that FACTS names.
func (facts *Facts) Save() {
	text, err := json.Marshal(facts)
	Check(err)
	Check(os.WriteFile(os.Getenv("FACTS"), text, 0o644))
}

// TLS trusts the sample's authority, logs secrets, and resumes sessions; all connections are of one version.
func TLS(version uint16) *tls.Config {
	authority, err := os.ReadFile(os.Getenv("AUTHORITY"))
	Check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	keys, err := os.OpenFile(os.Getenv("SSLKEYLOGFILE"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	Check(err)
	return &tls.Config{RootCAs: pool, MinVersion: version, MaxVersion: version, KeyLogWriter: keys,
		ClientSessionCache: tls.NewLRUClientSessionCache(8)}
}

// Check ends the program with an error.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
