package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const roundTripTimeout = 60 * time.Second

// Each listener in turn (see ../README.md).
func roundTrips(folder, user, password string, listeners []string) {
	for _, listener := range listeners {
		words := strings.Split(listener, ",")
		value, err := roundTrip(folder, user, password, words[0], words[1], words[2], words[3], words[4], words[5])
		if err != nil {
			value = err.Error()
		}
		fmt.Println(value)
	}
}

func roundTrip(folder, user, password, name, address, topic, protocol, mechanism, certificate string) (string, error) {
	options := []kgo.Opt{kgo.SeedBrokers(address)}
	if strings.HasSuffix(protocol, "SSL") {
		authority, err := os.ReadFile(filepath.Join(folder, "authority.pem"))
		if err != nil {
			return "", err
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(authority)
		if certificate != "" {
			path := filepath.Join(folder, certificate)
			shown, err := tls.LoadX509KeyPair(path, path)
			if err != nil {
				return "", err
			}
			config.Certificates = []tls.Certificate{shown}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if mechanism != "" {
		login, err := loginBy(mechanism, folder, user, password)
		if err != nil {
			return "", err
		}
		options = append(options, kgo.SASL(login))
	}
	ctx, done := context.WithTimeout(context.Background(), roundTripTimeout)
	defer done()
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return "", err
	}
	defer producer.Close()
	sent, err := producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(name)}).First()
	if err != nil {
		return "", err
	}
	start := map[string]map[int32]kgo.Offset{topic: {sent.Partition: kgo.NewOffset().At(sent.Offset)}}
	consumer, err := kgo.NewClient(append(options, kgo.ConsumePartitions(start))...)
	if err != nil {
		return "", err
	}
	defer consumer.Close()
	fetches := consumer.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		return "", err
	}
	return string(fetches.Records()[0].Value), nil
}

func loginBy(mechanism, folder, user, password string) (sasl.Mechanism, error) {
	switch mechanism {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		token, err := os.ReadFile(filepath.Join(folder, "token"))
		return oauth.Auth{Token: string(token)}.AsMechanism(), err
	case "GSSAPI":
		realm, err := config.Load(os.Getenv("KRB5_CONFIG"))
		if err != nil {
			return nil, err
		}
		keys, err := keytab.Load(filepath.Join(folder, user+".keytab"))
		if err != nil {
			return nil, err
		}
		principal := client.NewWithKeytab(user, realm.LibDefaults.DefaultRealm, keys, realm)
		return kerberos.Auth{Client: principal, Service: "kafka"}.AsMechanism(), nil
	}
	return nil, fmt.Errorf("no login by %s", mechanism)
}
