package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// certificateLifetime bounds how long a cluster may stay up, and for how long a copied kubeconfig is
// good: certificates are issued anew at every start.
const certificateLifetime = 365 * 24 * time.Hour

// authority is the certificate authority that every component of a cluster trusts.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// loadAuthority reads ca.crt and ca.key from dir, or creates them if neither is there. Keeping them
// keeps kubeconfigs that users copied valid after a restart.
func loadAuthority(dir string) (*authority, error) {
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	key, err := loadKey(keyFile)
	if err != nil {
		return nil, err
	}
	certificates, err := cert.CertsFromFile(certFile)
	if err == nil {
		return &authority{certificate: certificates[0], key: key}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{
		CommonName: "muster-local",
		NotBefore:  time.Now().Add(-time.Hour),
	}, key)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	pem, err := cert.EncodeCertificates(certificate)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	return &authority{certificate: certificate, key: key}, cert.WriteCert(certFile, pem)
}

// loadKey reads a private key from a file, or creates the file if it is not there.
func loadKey(file string) (crypto.Signer, error) {
	pem, _, err := keyutil.LoadOrGenerateKeyFile(file)
	if err != nil {
		return nil, fmt.Errorf("private key %s: %w", file, err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		return nil, fmt.Errorf("private key %s: %w", file, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("private key %s: a %T cannot sign", file, key)
	}
	return signer, nil
}

// issue signs a certificate for a user or a server of this machine. The subject's common name and
// organizations are the user's name and groups.
func (a *authority) issue(subject pkix.Name, hosts ...string) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(certificateLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s: %w", subject.CommonName, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, err
	}
	certPEM, err = cert.EncodeCertificates(certificate)
	return certPEM, keyPEM, err
}

// issueFiles writes a certificate and its key as name.crt and name.key into dir.
func (a *authority) issueFiles(dir, name string, subject pkix.Name, hosts ...string) (certFile, keyFile string, err error) {
	certPEM, keyPEM, err := a.issue(subject, hosts...)
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := cert.WriteCert(certFile, certPEM); err != nil {
		return "", "", err
	}
	return certFile, keyFile, keyutil.WriteKey(keyFile, keyPEM)
}
