# Muster: `make help` lists the targets.

# The Kubernetes that the binaries are built from, and call themselves: hack/update-kubernetes.sh moves it.
KUBERNETES_VERSION := v1.37.2

# One set of build flags, for go build and go test alike: other ones compile Kubernetes again.
export GOFLAGS := -buildvcs=false
LDFLAGS := -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)

# Where goroutines are, tests run under the race detector.
RACE_PACKAGES := ./plugins/... ./podgroup/...
UNIT_PACKAGES := ./cmd/... ./manifests/... ./trainer/... ./hack/...

GO := go
STATICCHECK := bin/staticcheck

.DEFAULT_GOAL := help

##@ Build

.PHONY: build
build: ## Build bin/muster-scheduler, bin/muster-local and bin/kubectl-muster.
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/muster-scheduler ./cmd/muster-local ./cmd/kubectl-muster

.PHONY: demo
demo: build ## Run three TrainJobs on a local control plane, with Muster and without.
	bin/muster-local demo

##@ Test

.PHONY: test
test: test-unit test-integration ## Run all tests.

.PHONY: test-unit
test-unit: ## Run unit and property tests, the scheduling core under the race detector.
	$(GO) test -vet=off -ldflags '$(LDFLAGS)' $(UNIT_PACKAGES)
	CGO_ENABLED=1 $(GO) test -vet=off -race $(RACE_PACKAGES)
	cd hack/bench/workload && $(GO) test -vet=off ./...
	cd hack/bench/report && $(GO) test -vet=off ./...
	cd hack/replay && $(GO) test -vet=off ./...
	$(GO) test -vet=off github.com/muster-sched/muster/hack/bench/harness

.PHONY: test-integration
test-integration: ## Run the tests against a real API server, scheduler and controllers.
	$(GO) test -vet=off -ldflags '$(LDFLAGS)' -v -timeout 15m ./test/...

SOAK_STEPS ?= 1000000

.PHONY: soak
soak: ## Take a million random steps in a simulated cluster (SOAK_STEPS=n for another number).
	$(GO) test -vet=off -ldflags '$(LDFLAGS)' -v -timeout 6h -run TestInvariantsHold ./plugins/simulation -soak $(SOAK_STEPS)

.PHONY: conformance
conformance: conformance-library conformance-kueue conformance-trainer ## Compare with Kubeflow Trainer and Kueue in all of the ways below.

.PHONY: conformance-library
conformance-library: ## Record again what Kubeflow Trainer's own library makes, and compare (compiles Kubernetes 1.36).
	cd hack/conformance && $(GO) run ./generate
	git diff --exit-code -- trainer/testdata
	$(GO) test -vet=off -v -run KubeflowTrainer ./trainer

.PHONY: conformance-kueue
conformance-kueue: ## Record again which pods Kueue counts of TrainJobs, and compare (compiles Kubernetes 1.35).
	cd hack/conformance/kueue && $(GO) run .
	git diff --exit-code -- trainer/testdata
	$(GO) test -vet=off -v -run Kueue ./trainer

.PHONY: conformance-trainer
conformance-trainer: ## Run Kubeflow Trainer's own integration suites against Muster (compiles Kubernetes 1.36).
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/muster-scheduler k8s.io/kubernetes/cmd/kube-apiserver
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/etcd go.etcd.io/etcd/server/v3
	cd hack/conformance && $(GO) test -vet=off ./trainer && $(GO) run ./trainer

.PHONY: bench
bench: bench-build ## Measure Muster and its peers on the small set of cases with Kubernetes' scheduler_perf (20 minutes).
	$(BENCH) -out bin/bench; status=$$?; ($(REPORT) -in ../../../bin/bench) && exit $$status

.PHONY: bench-full
bench-full: bench-build ## Measure all cases, three times each (hours).
	$(BENCH) -full -runs 3 -out bin/bench; status=$$?; ($(REPORT) -in ../../../bin/bench) && exit $$status

.PHONY: bench-page
bench-page: ## Write docs/benchmarks.md from what bench or bench-full measured last.
	$(REPORT) -in ../../../bin/bench -page ../../../docs/benchmarks.md -note '$(NOTE)'

.PHONY: bench-check
bench-check: bench-build ## Fail if Muster's ratios to the ceiling fell below hack/bench/baseline.json by more than noise (7 minutes).
	$(BENCH) -cases '$(GUARDED_CASES)' -schedulers '$(GUARDED_SCHEDULERS)' -out bin/bench-check
	$(REPORT) -in ../../../bin/bench-check -check ../baseline.json

.PHONY: bench-baseline
bench-baseline: bench-build ## Write hack/bench/baseline.json anew, from three runs (20 minutes).
	$(BENCH) -cases '$(GUARDED_CASES)' -schedulers '$(GUARDED_SCHEDULERS)' -runs 3 -out bin/bench-check
	$(REPORT) -in ../../../bin/bench-check -baseline ../baseline.json

.PHONY: bench-peers
bench-peers: ## Build the peers that need a Kubernetes of their own, for bench and bench-full (compiles Kubernetes 1.34).
	cd hack/bench/peers/scheduler-plugins && $(GO) test -vet=off -ldflags -w -c -o ../../../../$(PEER) .

.PHONY: bench-build
bench-build:
	$(GO) build -o bin/etcd go.etcd.io/etcd/server/v3
	$(GO) test -vet=off -ldflags '$(LDFLAGS)' -c -o bin/perf.test ./hack/bench/perf

PEER := bin/scheduler-plugins.test
BENCH = $(GO) run ./hack/bench $(if $(wildcard $(PEER)),-peers scheduler-plugins=$(PEER))
REPORT := cd hack/bench/report && $(GO) run .
GUARDED_CASES := ^(gang-1000x3|topology-750x4)$$
GUARDED_SCHEDULERS := ^(no gangs|muster|muster native)$$

.PHONY: bench-planner
bench-planner: ## Measure the planner alone.
	$(GO) test -vet=off -run '^$$' -bench . -benchmem ./podgroup/planner

TRAINJOBS := 1000

.PHONY: bench-trainer
bench-trainer: build ## Measure TRAINJOBS=1000 TrainJobs at once beside Kubeflow Trainer's own controller (compiles Kubernetes 1.36).
	cd hack/conformance && $(GO) build -o ../../bin/kubeflow-trainer github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager
	$(GO) run ./hack/bench-trainer -muster-local bin/muster-local -trainjobs $(TRAINJOBS) muster=bin/muster-scheduler kubeflow=bin/kubeflow-trainer

.PHONY: replay
replay: ## Replay a month of 2,000 GPUs under Muster and its peers, and draw what came of it (docs/replay.md).
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/kubectl-muster
	bin/kubectl-muster simulate -o json --report bin/replay.md > bin/replay.json
	cd hack/replay && $(GO) run . -in ../../bin/replay.json -out ../../docs/replay -tables ../../bin/replay.md -page ../../docs/replay.md

##@ Check

.PHONY: lint
lint: $(STATICCHECK) ## Check format, suspicious code, and leftovers.
	hack/lint.sh $(STATICCHECK)

.PHONY: verify
verify: ## Check that generated files are up to date.
	hack/generate.sh --verify

.PHONY: generate
generate: ## Generate deepcopy methods and CustomResourceDefinitions.
	hack/generate.sh

$(STATICCHECK): hack/tools/go.mod
	cd hack/tools && $(GO) build -o ../../$@ honnef.co/go/tools/cmd/staticcheck

##@ Help

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make TARGET" } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
