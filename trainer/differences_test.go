package trainer

// intent is a reason to differ from Kubeflow Trainer, and where it shows.
type intent struct {
	why         string
	differences []difference
}

// intendedDifferences are all differences from Kubeflow Trainer 2.3.0, by the input in which they show.
var intendedDifferences = map[string][]intent{}
