package app

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/muster-sched/muster/trainer/webhooks"
)

func (c *ControllerOptions) addWebhookFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.TrainerWebhooks, "trainer-webhooks", c.TrainerWebhooks,
		"Serve admission webhooks that refuse wrong TrainJobs and runtimes. Needs the webhook configurations, and their Service and Secret. Without webhooks a wrong TrainJob gets a Failed condition.")
	fs.StringVar(&c.TrainerWebhooksBindAddress, "trainer-webhooks-bind-address", c.TrainerWebhooksBindAddress,
		"Where the webhooks are served over HTTPS.")
	fs.StringVar(&c.TrainerWebhooksService, "trainer-webhooks-service", c.TrainerWebhooksService,
		"The Service, as namespace/name, that the webhook configurations name. The certificate is kept in the Secret of that name with the suffix -cert.")
	fs.StringVar(&c.TrainerWebhooksCertDir, "trainer-webhooks-cert-dir", c.TrainerWebhooksCertDir,
		"The directory where the Secret with the webhooks' certificate is mounted.")
}

// validateWebhooks checks the options of the webhooks, if they are to be served.
func (c *ControllerOptions) validateWebhooks(trainerRuns bool) []error {
	if !c.TrainerWebhooks {
		return nil
	}
	if !trainerRuns {
		return []error{fmt.Errorf("--trainer-webhooks: has no meaning without %s in --controllers", trainerName)}
	}
	var errs []error
	if _, _, err := c.webhooksHostPort(); err != nil {
		errs = append(errs, fmt.Errorf("--trainer-webhooks-bind-address: %w", err))
	}
	if namespace, name, ok := strings.Cut(c.TrainerWebhooksService, "/"); !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1035Label(name)) > 0 {
		errs = append(errs, fmt.Errorf("--trainer-webhooks-service: %q is not the namespace/name of a Service", c.TrainerWebhooksService))
	}
	if c.TrainerWebhooksCertDir == "" {
		errs = append(errs, fmt.Errorf("--trainer-webhooks-cert-dir: must not be empty"))
	}
	return errs
}

// webhooksHostPort returns the two parts of the webhooks' bind address.
func (c *ControllerOptions) webhooksHostPort() (string, int, error) {
	host, port, err := net.SplitHostPort(c.TrainerWebhooksBindAddress)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port: %w", c.TrainerWebhooksBindAddress, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return "", 0, fmt.Errorf("%q has no port between 1 and 65535", c.TrainerWebhooksBindAddress)
	}
	return host, int(number), nil
}

// webhooks returns what the trainer must know about its webhooks, nil if it has none.
func (c *ControllerOptions) webhooks() *webhooks.Options {
	if !c.TrainerWebhooks {
		return nil
	}
	namespace, name, _ := strings.Cut(c.TrainerWebhooksService, "/")
	return &webhooks.Options{
		Service: types.NamespacedName{Namespace: namespace, Name: name},
		CertDir: c.TrainerWebhooksCertDir,
	}
}

// webhookServer returns the server of the trainer's webhooks, nil if it has none.
func webhookServer(opts *ControllerOptions) (webhook.Server, error) {
	webhooks := opts.webhooks()
	if webhooks == nil {
		return nil, nil
	}
	host, port, err := opts.webhooksHostPort()
	if err != nil {
		return nil, err
	}
	return webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: webhooks.CertDir}), nil
}
