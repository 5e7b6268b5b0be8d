package controlplane

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	_ "github.com/muster-sched/muster/cmd/muster-local/controlplane/etcdlog" // before the API server's etcd client
)

// startEtcd starts a single-member etcd on free ports of the loopback interface and returns its URL.
// Clients need a certificate: etcd holds every secret of the cluster, and the machine may have other
// users.
func (c *Cluster) startEtcd(ctx context.Context) (string, error) {
	certFile, keyFile, err := c.ca.issueFiles(c.dir, "etcd", pkix.Name{CommonName: "etcd"}, loopback, "localhost")
	if err != nil {
		return "", err
	}
	tls := transport.TLSInfo{CertFile: certFile, KeyFile: keyFile, TrustedCAFile: c.file("ca.crt"), ClientCertAuth: true}
	// etcd knows its member by the URLs it was created with, and the kernel chooses the ports, so the
	// URLs that it advertises to nobody stay the same across restarts.
	anyPort := []url.URL{{Scheme: "https", Host: loopback + ":0"}}

	config := embed.NewConfig()
	config.Dir = c.file("etcd")
	config.ClientTLSInfo, config.PeerTLSInfo = tls, tls
	config.ListenClientUrls, config.AdvertiseClientUrls = anyPort, anyPort
	config.ListenPeerUrls, config.AdvertisePeerUrls = anyPort, anyPort
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.EnableGRPCGateway = false
	config.UnsafeNoFsync = true // survives a killed process, not a power cut, and is much faster
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(zapcore.NewCore(
		zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(c.log), zap.WarnLevel)))

	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return "", err
	}
	c.onStop(etcd.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return "", err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case <-time.After(readyTimeout):
		return "", errors.New("not ready in time")
	}
	go func() {
		// Closed by Close; an error before that is a failure of the cluster.
		if err, open := <-etcd.Err(); open {
			c.fail(fmt.Errorf("etcd: %w", err))
		}
	}()
	return "https://" + etcd.Clients[0].Addr().String(), nil
}
