package controlplane

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/configz"
	controllermanagerapp "k8s.io/controller-manager/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

const serviceAccountController = names.ServiceAccountController

func (c *Cluster) startControllerManager(ctx context.Context) error {
	opts, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	known, disabled, aliases := controllermanager.KnownControllers(), controllermanager.ControllersDisabledByDefault(), controllermanager.ControllerAliases()
	if err := parse(opts.Flags(known, disabled, aliases), []string{
		"--kubeconfig=" + c.kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--service-account-private-key-file=" + c.file(serviceAccountKeyFile),
		"--root-ca-file=" + c.file("ca.crt"),
		"--cluster-signing-cert-file=" + c.file("ca.crt"),
		"--cluster-signing-key-file=" + c.file("ca.key"),
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--controller-start-interval=0s",
		fmt.Sprintf("--node-monitor-grace-period=%ds", nodeLeaseSeconds),
		"--controllers=" + strings.Join(c.controllers(), ","),
	}); err != nil {
		return err
	}
	config, err := opts.Config(ctx, known, disabled, aliases)
	if err != nil {
		return err
	}
	configz.Delete(controllermanager.ConfigzName)
	c.run(ctx, "kube-controller-manager", func(ctx context.Context) error {
		return controllermanager.Run(ctx, config.Complete())
	})
	return nil
}

func (c *Cluster) controllers() []string {
	if len(c.config.Controllers) == 0 {
		return []string{"*"}
	}
	return c.config.Controllers
}

func (c *Cluster) controllerEnabled(name string) bool {
	disabled := sets.NewString(controllermanager.ControllersDisabledByDefault()...)
	return controllermanagerapp.IsControllerEnabled(name, disabled, c.controllers())
}
