package webhooks

import (
	"fmt"
	"sync/atomic"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

// rotators counts the rotators of the process, because each needs a name of its own.
var rotators atomic.Int32

// rotateCertificates has a manager keep a certificate authority and a certificate in a Secret, and the
// authority in the webhook configurations. It closes ready when the certificate is mounted and the
// configurations trust it. The Secret must exist, and be mounted; it may be empty.
func rotateCertificates(mgr ctrl.Manager, opts Options, ready chan struct{}) error {
	return rotator.AddRotator(mgr, &rotator.CertRotator{
		SecretKey:      types.NamespacedName{Namespace: opts.Service.Namespace, Name: SecretName(opts.Service.Name)},
		CertDir:        opts.CertDir,
		CAName:         opts.Service.Name + "-ca",
		CAOrganization: "muster",
		DNSName:        fmt.Sprintf("%s.%s.svc", opts.Service.Name, opts.Service.Namespace),
		IsReady:        ready,
		Webhooks: []rotator.WebhookInfo{
			{Type: rotator.Validating, Name: ValidatingConfiguration},
			{Type: rotator.Mutating, Name: MutatingConfiguration},
		},
		ControllerName: fmt.Sprintf("webhook-certificates-%d", rotators.Add(1)),
	})
}
