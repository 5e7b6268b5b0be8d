// Package jobset makes the JobSet of a TrainJob, and reads the TrainJob's status from it.
package jobset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// Name of the plugin.
const Name = "JobSet"

// envStorageURI tells an initializer what to fetch.
const envStorageURI = "STORAGE_URI"

// JobSet owns the JobSet of each TrainJob. The JobSet has the TrainJob's name, and must equal the one that
// Kubeflow Trainer makes: Kueue computes it by itself, from the TrainJob, to count the TrainJob's demand.
type JobSet struct {
	client client.Client
	reader client.Reader
}

var (
	_ framework.ValidationPlugin = (*JobSet)(nil)
	_ framework.PodNetworkPlugin = (*JobSet)(nil)
	_ framework.ComponentPlugin  = (*JobSet)(nil)
	_ framework.StatusPlugin     = (*JobSet)(nil)
)

// New makes the plugin. It reads JobSets through c, which may be cached, and writes them. Through live, which must
// not be cached, it reads one that c does not show where that matters.
func New(c client.Client, live client.Reader) *JobSet {
	return &JobSet{client: c, reader: live}
}

// Name implements framework.Plugin.
func (*JobSet) Name() string {
	return Name
}

// IdentifyPodNetwork implements framework.PodNetworkPlugin.
func (*JobSet) IdentifyPodNetwork(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	for p := range info.PodSets {
		podSet := &info.PodSets[p]
		podSet.Endpoints = func(yield func(string) bool) {
			for replica := range podSet.Replicas {
				for index := range podSet.Count {
					if !yield(info.Endpoint(trainJob, podSet, replica, index)) {
						return
					}
				}
			}
		}
	}
	return nil
}

// Build implements framework.ComponentPlugin.
func (*JobSet) Build(_ context.Context, info *runtime.Info, trainJob *v1alpha1.TrainJob) ([]client.Object, error) {
	for p := range info.PodSets {
		podSet := &info.PodSets[p]
		count := podSet.Count
		podSet.Job.Template.Spec.Parallelism = &count
		podSet.Job.Template.Spec.Completions = &count
	}
	if initializer := trainJob.Spec.Initializer; initializer != nil {
		if dataset := initializer.Dataset; dataset != nil {
			initialize(info, v1alpha1.AncestorDatasetInitializer, dataset.StorageURI, dataset.Env, dataset.SecretRef)
		}
		if model := initializer.Model; model != nil {
			initialize(info, v1alpha1.AncestorModelInitializer, model.StorageURI, model.Env, model.SecretRef)
		}
	}
	if trainer := trainJob.Spec.Trainer; trainer != nil {
		for _, podSet := range info.TrainingPods() {
			if container := podSet.Container(v1alpha1.NodeContainer); container != nil {
				runtime.SetEnv(container, trainer.Env...)
			}
		}
	}
	jobSet := &jobsetv1alpha2.JobSet{
		TypeMeta: metav1.TypeMeta{APIVersion: jobsetv1alpha2.GroupVersion.String(), Kind: "JobSet"},
		ObjectMeta: metav1.ObjectMeta{
			Name:            trainJob.Name,
			Namespace:       trainJob.Namespace,
			Labels:          info.Labels,
			Annotations:     info.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(trainJob, v1alpha1.GroupVersion.WithKind(v1alpha1.TrainJobKind))},
		},
		Spec: *info.JobSet,
	}
	jobSet.Spec.Suspend = trainJob.Spec.Suspend
	holdBackTTL(jobSet)
	return []client.Object{jobSet}, nil
}

// initialize configures the container of an initializer. The user's own STORAGE_URI, if there is one, wins
// over storageUri.
func initialize(info *runtime.Info, ancestor string, storageURI *string, env []corev1.EnvVar, secret *corev1.LocalObjectReference) {
	podSet := info.Configured(ancestor)
	if podSet == nil {
		return
	}
	container := podSet.Container(ancestor)
	if container == nil {
		return
	}
	if storageURI != nil {
		runtime.SetEnv(container, corev1.EnvVar{Name: envStorageURI, Value: *storageURI})
	}
	runtime.SetEnv(container, env...)
	if secret != nil {
		container.EnvFrom = append(container.EnvFrom, corev1.EnvFromSource{
			SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *secret},
		})
	}
}

// Status implements framework.StatusPlugin. A TrainJob that is finished keeps its conditions: a JobSet that
// was deleted, or replaced, does not revive it.
func (j *JobSet) Status(ctx context.Context, trainJob *v1alpha1.TrainJob) error {
	jobSet, err := j.live(ctx, trainJob)
	if err != nil || jobSet == nil {
		return err
	}
	if !metav1.IsControlledBy(jobSet, trainJob) {
		return nil
	}
	if !trainJob.Finished() {
		copyCondition(trainJob, jobSet, jobsetv1alpha2.JobSetCompleted, v1alpha1.TrainJobComplete)
		copyCondition(trainJob, jobSet, jobsetv1alpha2.JobSetFailed, v1alpha1.TrainJobFailed)
	}
	jobs := make([]v1alpha1.JobStatus, 0, len(jobSet.Status.ReplicatedJobsStatus))
	for _, job := range jobSet.Status.ReplicatedJobsStatus {
		jobs = append(jobs, v1alpha1.JobStatus{
			Name:      job.Name,
			Ready:     &job.Ready,
			Succeeded: &job.Succeeded,
			Failed:    &job.Failed,
			Active:    &job.Active,
			Suspended: &job.Suspended,
		})
	}
	trainJob.Status.JobsStatus = jobs
	return nil
}

func copyCondition(trainJob *v1alpha1.TrainJob, jobSet *jobsetv1alpha2.JobSet, from jobsetv1alpha2.JobSetConditionType, to string) {
	condition := meta.FindStatusCondition(jobSet.Status.Conditions, string(from))
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return
	}
	copied := *condition
	copied.Type = to
	// It counts the JobSet's generations, not the TrainJob's.
	copied.ObservedGeneration = 0
	meta.SetStatusCondition(&trainJob.Status.Conditions, copied)
}

// live returns the JobSet of the TrainJob's name, nil if there is none.
func (j *JobSet) live(ctx context.Context, trainJob *v1alpha1.TrainJob) (*jobsetv1alpha2.JobSet, error) {
	jobSet := &jobsetv1alpha2.JobSet{}
	err := j.client.Get(ctx, client.ObjectKeyFromObject(trainJob), jobSet)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting JobSet %s: %w", client.ObjectKeyFromObject(trainJob), err)
	}
	return jobSet, nil
}
