package main

import (
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// cluster is where the commands that need one look: kubectl's flags, and its files where they say nothing.
type cluster struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func newCluster(flags *pflag.FlagSet) *cluster {
	c := &cluster{rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	flags.StringVar(&c.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "path of the kubeconfig file")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace.ShortName = "n"
	clientcmd.BindOverrideFlags(&c.overrides, flags, names)
	return c
}

// connect returns a client, and the namespace that the user is in.
func (c *cluster) connect() (client.Client, string, error) {
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides)
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, "", err
	}
	rest, err := config.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, schedulingv1beta1.AddToScheme, v1alpha1.AddToScheme, trainer.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, "", err
		}
	}
	kube, err := client.New(rest, client.Options{Scheme: scheme})
	return kube, namespace, err
}
