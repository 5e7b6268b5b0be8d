// Package framework takes the place of the package of the same name in Kubeflow Trainer's integration tests, which
// starts Kubeflow Trainer's controllers inside the test. This one starts muster-scheduler beside it.
//
// It is compiled as part of Kubeflow Trainer's module, so it imports nothing of Muster, and has exactly the methods that
// the suites call. Environment variables tell it where Muster is.
package framework

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerpluginsv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
)

// What the runner sets.
const (
	// binaryVariable is the path of muster-scheduler.
	binaryVariable = "MUSTER_BINARY"

	// crdsVariable is a list of files and directories with CustomResourceDefinitions, separated like PATH.
	crdsVariable = "MUSTER_CRDS"

	// webhooksVariable is the directory of the manifests of Muster's webhooks.
	webhooksVariable = "MUSTER_WEBHOOKS"

	// logVariable is the file that Muster's log is appended to.
	logVariable = "MUSTER_LOG"
)

// patience is how long Muster may take to be ready.
const patience = 2 * time.Minute

// Framework is a control plane of its own and Muster beside it.
type Framework struct {
	testEnv *envtest.Environment
	cancel  context.CancelFunc
	muster  *process
}

// Init starts the control plane, with the CustomResourceDefinitions and without webhooks.
func (f *Framework) Init() *rest.Config {
	ginkgo.By("starting the control plane")
	ctrl.SetLogger(ginkgo.GinkgoLogr)
	f.testEnv = &envtest.Environment{
		CRDDirectoryPaths:        filepath.SplitList(os.Getenv(crdsVariable)),
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: patience,
		ControlPlaneStopTimeout:  patience,
	}
	config, err := f.testEnv.Start()
	gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
	return config
}

// RunManager starts Muster with its webhooks and, if asked to, its controllers, and returns when it is ready. The
// context ends with Teardown.
func (f *Framework) RunManager(config *rest.Config, startControllers bool) (context.Context, client.Client) {
	for _, add := range []func(*runtime.Scheme) error{
		trainer.AddToScheme, jobsetv1alpha2.AddToScheme, schedulerpluginsv1alpha1.AddToScheme, volcanov1beta1.AddToScheme,
	} {
		gomega.ExpectWithOffset(1, add(scheme.Scheme)).To(gomega.Succeed())
	}
	kube, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel

	ginkgo.By("starting Muster")
	dir := ginkgo.GinkgoT().TempDir()
	webhooksPort, probePort := freePort(), freePort()
	gomega.ExpectWithOffset(1, installWebhooks(ctx, kube, os.Getenv(webhooksVariable), webhooksPort)).To(gomega.Succeed())
	if !startControllers {
		gomega.ExpectWithOffset(1, takeLease(ctx, kube)).To(gomega.Succeed())
	}
	kubeconfig, certDir := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "certs")
	gomega.ExpectWithOffset(1, os.WriteFile(kubeconfig, f.testEnv.KubeConfig, 0o600)).To(gomega.Succeed())
	gomega.ExpectWithOffset(1, os.Mkdir(certDir, 0o700)).To(gomega.Succeed())
	go mountSecret(ctx, kube, certDir)
	f.muster, err = start(os.Getenv(binaryVariable), os.Getenv(logVariable),
		// As Kubeflow Trainer: the controller of PodGroups is another program's there.
		"--scheduler=false", "--controllers=trainer",
		"--kubeconfig="+kubeconfig,
		fmt.Sprintf("--controllers-leader-elect=%t", !startControllers),
		"--controllers-metrics-bind-address=0",
		fmt.Sprintf("--controllers-health-probe-bind-address=%s", local(probePort)),
		"--trainer-webhooks",
		fmt.Sprintf("--trainer-webhooks-bind-address=%s", local(webhooksPort)),
		"--trainer-webhooks-cert-dir="+certDir,
	)
	gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
	gomega.EventuallyWithOffset(1, func() error { return f.muster.ready(probePort) }, patience, 100*time.Millisecond).Should(gomega.Succeed())
	gomega.EventuallyWithOffset(1, func() error { return webhooksAnswer(ctx, kube) }, patience, 100*time.Millisecond).Should(gomega.Succeed())
	return ctx, kube
}

// Teardown ends Muster and the control plane.
func (f *Framework) Teardown() {
	ginkgo.By("stopping Muster and the control plane")
	if f.cancel != nil {
		f.cancel()
	}
	if f.muster != nil {
		f.muster.stop()
	}
	gomega.ExpectWithOffset(1, f.testEnv.Stop()).To(gomega.Succeed())
}
