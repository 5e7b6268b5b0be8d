package controlplane

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes a configuration's server and credentials to a file of the data directory, for
// programs that read a kubeconfig, and returns its path.
func (c *Cluster) WriteKubeconfig(name string, config *rest.Config) (string, error) {
	const entry = "muster-local"
	out := clientcmdapi.NewConfig()
	out.Clusters[entry] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	out.AuthInfos[entry] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
	}
	out.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	out.CurrentContext = entry
	path := c.file(name)
	if err := clientcmd.WriteToFile(*out, path); err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	return path, nil
}
