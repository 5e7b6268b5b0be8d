package v1alpha1

const (
	// TrainJobKind is the kind of TrainJob.
	TrainJobKind = "TrainJob"

	// TrainingRuntimeKind is the kind of the runtime that serves one namespace.
	TrainingRuntimeKind = "TrainingRuntime"

	// ClusterTrainingRuntimeKind is the kind of the runtime that serves every namespace.
	ClusterTrainingRuntimeKind = "ClusterTrainingRuntime"

	// ControllerName is the managedBy value of the TrainJobs that a trainer controller reconciles itself.
	ControllerName = "trainer.kubeflow.org/trainjob-controller"

	// AncestorLabel sits on a replicated job's template and says which part of a TrainJob configures it:
	// AncestorTrainer, AncestorDatasetInitializer or AncestorModelInitializer.
	AncestorLabel = "trainer.kubeflow.org/trainjob-ancestor-step"

	// AncestorTrainer is the AncestorLabel value of the replicated job that spec.trainer configures.
	AncestorTrainer = "trainer"

	// AncestorDatasetInitializer is the AncestorLabel value of the replicated job that spec.initializer.dataset
	// configures, and the name of the container that it configures.
	AncestorDatasetInitializer = "dataset-initializer"

	// AncestorModelInitializer is the AncestorLabel value of the replicated job that spec.initializer.model
	// configures, and the name of the container that it configures.
	AncestorModelInitializer = "model-initializer"

	// SupportLabel sits on a runtime, and says how long it will be kept: SupportDeprecated, or nothing.
	SupportLabel = "trainer.kubeflow.org/support"

	// SupportDeprecated is the SupportLabel value of a runtime that will be removed.
	SupportDeprecated = "deprecated"

	// ResourceInUseFinalizer is what trainers before Kubeflow Trainer 2.3 put on runtimes that a TrainJob used. It
	// is taken off, because nobody else would.
	ResourceInUseFinalizer = "trainer.kubeflow.org/resource-in-use"

	// NodeContainer is the name of the container that spec.trainer configures.
	NodeContainer = "node"
)

// Types of TrainJob conditions.
const (
	// TrainJobSuspended is True while the TrainJob is suspended, and False once it has been resumed.
	TrainJobSuspended = "Suspended"

	// TrainJobComplete is True once the training succeeded. It is final.
	TrainJobComplete = "Complete"

	// TrainJobFailed is True once the training failed or could not be started as written. It is final.
	TrainJobFailed = "Failed"

	// TrainJobBlocked is True while the TrainJob's children cannot be made, such as for lack of quota, and says
	// why; otherwise it is absent. Kubeflow Trainer has no such type.
	TrainJobBlocked = "Blocked"
)

// Reasons of TrainJob conditions. A Complete or Failed condition that stems from the JobSet carries the
// JobSet's own reason.
const (
	// ReasonSuspended goes with Suspended=True.
	ReasonSuspended = "Suspended"

	// ReasonResumed goes with Suspended=False.
	ReasonResumed = "Resumed"

	// ReasonRuntimeNotSupported goes with Failed=True: the runtime's kind, or one of its policies, is not
	// supported.
	ReasonRuntimeNotSupported = "TrainingRuntimeNotSupported"

	// ReasonDeadlineExceeded goes with Failed=True: spec.activeDeadlineSeconds ran out.
	ReasonDeadlineExceeded = "DeadlineExceeded"

	// ReasonRendezvousTimedOut goes with Failed=True: the pods of one of the TrainJob's gangs did not meet in time too
	// often. Kubeflow Trainer has no such reason.
	ReasonRendezvousTimedOut = "RendezvousTimedOut"

	// ReasonInvalid goes with Failed=True: a field of the TrainJob, or of its runtime, has a value that
	// cannot work. The message names the field. Kubeflow Trainer has no such reason: its webhooks refuse
	// most of these objects, and the rest fail silently.
	ReasonInvalid = "Invalid"
)
