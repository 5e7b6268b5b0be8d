package controlplane

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAuthorityIssues(t *testing.T) {
	a, err := loadAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := a.issue(pkix.Name{CommonName: "me", Organization: []string{"us"}}, "127.0.0.1", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: "example.org", Roots: roots}); err == nil {
		t.Error("the certificate is good for a host that it was not issued for")
	}
	if got := pair.Leaf.Subject; got.CommonName != "me" || len(got.Organization) != 1 || got.Organization[0] != "us" {
		t.Errorf("subject %v", got)
	}

	other, err := loadAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	strangers := x509.NewCertPool()
	strangers.AddCert(other.certificate)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: strangers}); err == nil {
		t.Error("two authorities trust each other")
	}
}

func TestAuthorityIsKept(t *testing.T) {
	dir := t.TempDir()
	first, err := loadAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := loadAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.certificate.Raw, second.certificate.Raw) {
		t.Error("the authority was replaced")
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadAuthority(dir); err == nil || !strings.Contains(err.Error(), "ca.key") {
		t.Errorf("error %v, want one that names the file", err)
	}
}
