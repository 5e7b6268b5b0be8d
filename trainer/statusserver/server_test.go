package statusserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

func write(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The server waits for its certificate, serves, and lets a report in flight end when it is asked to stop.
func TestServerStartsAndStops(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := newServer(Options{BindAddress: address, CertDir: dir}, good, newClient(t, nil, trainJob()))
	inside, leave := make(chan struct{}), make(chan struct{})
	handler := s.handler
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(inside)
		<-leave
		handler.ServeHTTP(w, r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	if s.ready(nil) == nil {
		t.Error("ready without a certificate")
	}

	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "tls.key", key)
	write(t, dir, "tls.crt", certificate)
	for s.ready(nil) != nil {
		select {
		case err := <-ended:
			t.Fatalf("ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+llmPath, strings.NewReader(report))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer good")
	codes := make(chan int, 1)
	go func() {
		response, err := c.Do(request)
		if err != nil {
			codes <- 0
			return
		}
		_ = response.Body.Close()
		codes <- response.StatusCode
	}()
	<-inside
	cancel()
	close(leave)
	if code := <-codes; code != http.StatusOK {
		t.Errorf("the report in flight got %d", code)
	}
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if s.ready(nil) == nil {
		t.Error("ready after the end")
	}
}

func TestServerEndsWithoutACertificate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newServer(Options{BindAddress: "127.0.0.1:0", CertDir: t.TempDir()}, good, nil).Start(ctx); err != nil {
		t.Error(err)
	}
}

func TestAuthorityWatcher(t *testing.T) {
	dir := t.TempDir()
	told := make(chan struct{}, 10)
	calls := 0
	w := &AuthorityWatcher{File: filepath.Join(dir, caFile), Period: time.Millisecond, Changed: func(context.Context) error {
		if calls++; calls == 1 {
			return errors.New("not now")
		}
		told <- struct{}{}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	write(t, dir, caFile, []byte("one"))
	// Not known from when on it has seen the first, so it is changed until it says so.
	for i := 0; ; i++ {
		write(t, dir, caFile, []byte(strings.Repeat("x", i+1)))
		select {
		case <-told:
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if calls < 2 {
				t.Error("a failure was not tried again")
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
