package controlplane

import (
	"context"
	_ "embed"
	"fmt"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/kustomize/stage/node/fast"
	heartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/client/clientset/versioned"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
)

const (
	// RunSecondsAnnotation on a pod says for how many seconds it runs, as a decimal number, before it
	// ends; "0" ends it as soon as it is ready. Without it, a pod runs until it is deleted. The time
	// starts when the pod both runs and carries the annotation.
	RunSecondsAnnotation = "muster.dev/run-seconds"

	// ExitCodeAnnotation is the exit code of all containers of a pod that RunSecondsAnnotation ends.
	// Anything but "0", the default, makes the pod fail.
	ExitCodeAnnotation = "muster.dev/exit-code"

	// ReadySecondsAnnotation says for how many seconds after it is bound a pod stays Pending, as a
	// decimal number: a slow image, for example.
	ReadySecondsAnnotation = "muster.dev/ready-seconds"

	// simulatedNode selects the nodes that are simulated.
	simulatedNodeAnnotation, simulatedNodeValue = "kwok.x-k8s.io/node", "fake"

	// nodeLeaseSeconds is long because nothing here loses contact with a node by accident and
	// every renewal of every node costs a write. Leases are renewed four times in this time.
	nodeLeaseSeconds = 240
)

//go:embed stages/pod-complete.yaml
var podComplete string

// stages returns what simulated nodes and pods do, by kind of object.
func stages() (map[internalversion.StageResourceRef][]*internalversion.Stage, error) {
	byKind := map[internalversion.StageResourceRef][]*internalversion.Stage{}
	for _, source := range []string{
		fast.DefaultNodeInit, heartbeat.DefaultNodeHeartbeatWithLease,
		podfast.DefaultPodReady, podComplete, podfast.DefaultPodDelete,
	} {
		stage, err := kwokconfig.UnmarshalWithType[*internalversion.Stage](source)
		if err != nil {
			return nil, fmt.Errorf("stage: %w", err)
		}
		if source == podfast.DefaultPodReady {
			stage.Spec.Delay = &internalversion.StageDelay{DurationFrom: &internalversion.ExpressionFrom{
				JQ: &internalversion.ExpressionJQ{Expression: `(.metadata.annotations["` + ReadySecondsAnnotation + `"] // "0") + "s"`},
			}}
		}
		byKind[stage.Spec.ResourceRef] = append(byKind[stage.Spec.ResourceRef], stage)
	}
	return byKind, nil
}

// startKwok runs the kubelets of all simulated nodes.
func (c *Cluster) startKwok(ctx context.Context) error {
	stages, err := stages()
	if err != nil {
		return err
	}
	dynamicClient, err := dynamic.NewForConfig(c.rest)
	if err != nil {
		return err
	}
	kwokClient, err := versioned.NewForConfig(c.rest)
	if err != nil {
		return err
	}
	discovery := c.client.Discovery()
	controller, err := controllers.NewController(controllers.Config{
		Clock:           clock.RealClock{},
		DynamicClient:   dynamicClient,
		RESTClient:      discovery.RESTClient(),
		RESTMapper:      restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery)),
		TypedClient:     c.client,
		TypedKwokClient: kwokClient,

		ManageNodesWithAnnotationSelector: simulatedNodeAnnotation + "=" + simulatedNodeValue,

		CIDR:     "10.0.0.1/24",
		NodeIP:   "10.0.0.1",
		NodeName: "kwok-controller",
		ID:       "muster-local",

		LocalStages:               stages,
		PodPlayStageParallelism:   4,
		NodePlayStageParallelism:  4,
		PodsOnNodeSyncParallelism: 4,
		NodeLeaseParallelism:      4,
		NodeLeaseDurationSeconds:  nodeLeaseSeconds,
	})
	if err != nil {
		return err
	}
	// The controller starts its own goroutines and offers no way to wait for their end.
	ctx, cancel := context.WithCancel(kwoklog.NewContext(context.WithoutCancel(ctx), kwoklog.NewLogger(c.log, kwoklog.LevelWarn)))
	c.onStop(cancel)
	return controller.Start(ctx)
}
