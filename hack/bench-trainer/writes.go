package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// What a trainer writes. The status of JobSets is another controller's.
var (
	writtenVerbs     = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}
	writtenResources = []string{"trainjobs/", "trainjobs/status", "jobsets/", "podgroups/", "configmaps/", "secrets/"}
)

var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// writes returns how many writes of the kinds that a trainer makes the API server has answered.
func writes(ctx context.Context, kubeconfig string) (int, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return 0, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	text, err := kube.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	return countWrites(string(text))
}

func countWrites(text string) (int, error) {
	total := 0
	for line := range strings.Lines(text) {
		labels, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok || !strings.HasPrefix(labels, "apiserver_request_total{") {
			continue
		}
		is := map[string]string{}
		for _, match := range label.FindAllStringSubmatch(labels, -1) {
			is[match[1]] = match[2]
		}
		if !slices.Contains(writtenVerbs, is["verb"]) || !slices.Contains(writtenResources, is["resource"]+"/"+is["subresource"]) {
			continue
		}
		count, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		total += int(count)
	}
	return total, nil
}
