module github.com/muster-sched/muster/hack/bench/workload

go 1.26.0
