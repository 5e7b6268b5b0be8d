package gang

import (
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// phasesOf returns the startup phase of each replicated job, in the order of the spec, from zero without
// gaps. The JobSet controller makes the pods of a job only when the jobs that it depends on are ready or
// complete: pods of two phases never wait at the same time, and a gang that needs both would wait for
// ever.
func phasesOf(spec *jobsetv1alpha2.JobSetSpec) []int {
	phases := make([]int, len(spec.ReplicatedJobs))
	if spec.StartupPolicy != nil && spec.StartupPolicy.StartupPolicyOrder == jobsetv1alpha2.InOrder {
		for i := range phases {
			phases[i] = i
		}
		return phases
	}
	// JobSet accepts dependencies on earlier jobs only, so one pass is enough.
	byName := make(map[string]int, len(phases))
	for i, job := range spec.ReplicatedJobs {
		for _, dependency := range job.DependsOn {
			if phase, ok := byName[dependency.Name]; ok {
				phases[i] = max(phases[i], phase+1)
			}
		}
		byName[job.Name] = phases[i]
	}
	return phases
}
