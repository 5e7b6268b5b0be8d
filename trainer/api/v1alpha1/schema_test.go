package v1alpha1

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	generatedDir = "../../../manifests/crds"
	recordedDir  = "../../testdata/crds"
)

// newerFields are fields that Kubernetes has added to pods, Jobs and claims since the version that Kubeflow
// Trainer 2.3.0 was generated with, by the end of their path. Everything else must be equal.
var newerFields = []string{
	"spec.replicatedJobs.template.spec.scheduling",
	"httpGet.protocol",
	"grpc.mode",
	"volumeMounts.bindMountOptions",
	"template.spec.evictionResponders",
	"emptyDir.mode",
	"configMap.defaultUser",
	"downwardAPI.defaultUser",
	"projected.defaultUser",
	"secret.defaultUser",
	"items.user",
	"clusterTrustBundle.user",
	"podCertificate.user",
	"serviceAccountToken.user",
	"templates.status.healthStatus",
}

// stricter are the rules and limits that Kubeflow Trainer lacks, by plural and path, and two columns: it shows no
// progress, and the state of a TrainJob is its latest condition there, so that one which was resumed is
// shown as suspended for ever.
var stricter = map[string][]string{
	"trainjobs": append([]string{
		"additionalPrinterColumns.Progress: added map[description:Percentage done, as the training code reported it. " +
			"jsonPath:.status.trainerStatus.progressPercentage name:Progress type:integer]",
		`additionalPrinterColumns.State.jsonPath: .status.conditions[-1:].type, now .status.conditions[?(@.status=="True")].type`,
	}, append(rulesAdded(patchedPodPath,
		"has(self.serviceAccountName) == has(oldSelf.serviceAccountName)",
		"has(self.volumes) == has(oldSelf.volumes)",
		"has(self.initContainers) == has(oldSelf.initContainers)",
		"has(self.containers) == has(oldSelf.containers)",
		"has(self.imagePullSecrets) == has(oldSelf.imagePullSecrets)",
		"has(self.securityContext) == has(oldSelf.securityContext)",
		"has(self.terminationGracePeriodSeconds) == has(oldSelf.terminationGracePeriodSeconds)",
	), rulesAdded("spec",
		"has(self.initializer) == has(oldSelf.initializer)",
		"has(self.trainer) == has(oldSelf.trainer)",
		"has(self.activeDeadlineSeconds) == has(oldSelf.activeDeadlineSeconds)",
		"has(self.suspend) && self.suspend || has(oldSelf.suspend) && oldSelf.suspend || has(self.runtimePatches) == has(oldSelf.runtimePatches) && (!has(self.runtimePatches) || self.runtimePatches == oldSelf.runtimePatches)",
	)...)...),
	"trainingruntimes":        stricterRuntime,
	"clustertrainingruntimes": stricterRuntime,
}

var stricterRuntime = append(
	[]string{"spec.podGroupPolicy.coscheduling.scheduleTimeoutSeconds.minimum: added 0"},
	rulesAdded("spec.podGroupPolicy", "[has(self.coscheduling), has(self.volcano)].filter(x, x).size() == 1")...)

const (
	patchedPodPath = "spec.runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec"
)

func rulesAdded(path string, rules ...string) []string {
	return []string{path + ".x-kubernetes-validations: added " + strings.Join(rules, " AND ")}
}

// TestSchemaEqualsKubeflowTrainers compares the generated CustomResourceDefinitions with Kubeflow Trainer's,
// which hack/conformance recorded: names, scopes, columns, types, defaults, limits, rules. Only descriptions
// are left out.
func TestSchemaEqualsKubeflowTrainers(t *testing.T) {
	for _, plural := range []string{"trainjobs", "trainingruntimes", "clustertrainingruntimes"} {
		t.Run(plural, func(t *testing.T) {
			recorded := load(t, filepath.Join(recordedDir, "trainer.kubeflow.org_"+plural+".json"))
			generated := load(t, filepath.Join(generatedDir, "trainer.kubeflow.org_"+plural+".yaml"))
			used := map[string]bool{}
			var differences []string
			compare("", recorded, generated, func(path, what string) {
				if field, ok := newer(path); ok && strings.HasPrefix(what, "added ") {
					used[field] = true
					return
				}
				differences = append(differences, short(path)+": "+what)
			})
			want := append([]string{"metadata.annotations.controller-gen.kubebuilder.io/version: v0.18.0, now v0.23.0"}, stricter[plural]...)
			if diff := cmp.Diff(want, differences); diff != "" {
				t.Errorf("differences (-want +got)\n%s", diff)
			}
			if plural == "clustertrainingruntimes" && len(used) != len(newerFields) {
				t.Errorf("%d of the %d newer fields are there", len(used), len(newerFields))
			}
		})
	}
}

// TestSchemaKeepsSchedulingGroup guards the field by which pods join native groups: without it in the
// schema the API server would drop it from every runtime.
func TestSchemaKeepsSchedulingGroup(t *testing.T) {
	for _, plural := range []string{"trainingruntimes", "clustertrainingruntimes"} {
		content, err := os.ReadFile(filepath.Join(generatedDir, "trainer.kubeflow.org_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), " schedulingGroup:\n") {
			t.Errorf("%s has no schedulingGroup", plural)
		}
	}
}

// short returns the path of a field without the words by which a schema nests.
func short(path string) string {
	path = strings.NewReplacer(".items.properties.", ".", ".properties.", ".").Replace(path)
	return strings.TrimPrefix(strings.TrimPrefix(path, "spec.versions[0]."), "schema.openAPIV3Schema.")
}

func newer(path string) (string, bool) {
	path = short(path)
	i := slices.IndexFunc(newerFields, func(field string) bool { return strings.HasSuffix(path, "."+field) })
	if i < 0 {
		return "", false
	}
	return newerFields[i], true
}

func load(t *testing.T, file string) any {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal(content, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// summary returns a value in one line: of rules, only what they say.
// byName makes a map of a list of objects that have names.
func byName(list any) any {
	byName := map[string]any{}
	for _, item := range list.([]any) {
		byName[item.(map[string]any)["name"].(string)] = item
	}
	return byName
}

func summary(value any) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	var parts []string
	for _, element := range list {
		if fields, ok := element.(map[string]any); ok && fields["rule"] != nil {
			element = fields["rule"]
		}
		parts = append(parts, fmt.Sprint(element))
	}
	return strings.Join(parts, " AND ")
}

// compare reports every path at which two values differ, in the order of the paths.
func compare(path string, want, got any, report func(path, what string)) {
	if strings.HasSuffix(path, "additionalPrinterColumns") {
		want, got = byName(want), byName(got)
	}
	wantList, wantOK := want.([]any)
	gotList, gotOK := got.([]any)
	if wantOK && gotOK && len(wantList) == len(gotList) {
		for i := range wantList {
			compare(fmt.Sprintf("%s[%d]", path, i), wantList[i], gotList[i], report)
		}
		return
	}
	wantMap, wantOK := want.(map[string]any)
	gotMap, gotOK := got.(map[string]any)
	if !wantOK || !gotOK {
		wantJSON, _ := json.Marshal(want)
		gotJSON, _ := json.Marshal(got)
		if string(wantJSON) != string(gotJSON) {
			report(path, fmt.Sprintf("%v, now %v", want, got))
		}
		return
	}
	var keys []string
	for key := range wantMap {
		keys = append(keys, key)
	}
	for key, value := range gotMap {
		if _, text := value.(string); key == "description" && text {
			continue
		}
		if _, ok := wantMap[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		field := strings.TrimPrefix(path+"."+key, ".")
		wantValue, inWant := wantMap[key]
		gotValue, inGot := gotMap[key]
		switch {
		case !inWant:
			report(field, "added "+summary(gotValue))
		case !inGot:
			report(field, "missing")
		default:
			compare(field, wantValue, gotValue, report)
		}
	}
}
