package controlplane

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// ServiceAccountREST returns a configuration that has a service account's rights and no others,
// without client-side rate limit. It waits for the service account to appear. The token is good for an
// hour.
func (c *Cluster) ServiceAccountREST(ctx context.Context, namespace, name string) (*rest.Config, error) {
	var token string
	what := fmt.Sprintf("token of service account %s/%s", namespace, name)
	if err := c.await(ctx, what, func(ctx context.Context) (bool, error) {
		request, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			return false, ignore(err, apierrors.IsNotFound)
		}
		token = request.Status.Token
		return true, nil
	}); err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(c.rest)
	config.BearerToken = token
	config.QPS = c.rest.QPS
	return config, nil
}
