package podgroup

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// startInformer runs the informer until the test ends and returns once it has synced.
func startInformer(t *testing.T, informer cache.SharedIndexInformer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	syncCtx, cancelSync := context.WithTimeout(ctx, 30*time.Second)
	defer cancelSync()
	if !cache.WaitForCacheSync(syncCtx.Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
}

func TestNewPodInformerFeedsMembership(t *testing.T) {
	fat := newPod("a", running())
	fatten(fat)
	client := fake.NewClientset(fat, newPod("b", inNamespace("ns2")), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: "ns"}})
	informer := NewPodInformer(client, 0)
	index := NewMembership()
	changes := make(chan string, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			index.Update(obj.(*corev1.Pod))
			changes <- "added " + obj.(*corev1.Pod).Name
		},
		DeleteFunc: func(obj any) {
			index.Delete(obj.(*corev1.Pod))
			changes <- "deleted " + obj.(*corev1.Pod).Name
		},
	}); err != nil {
		t.Fatal(err)
	}
	startInformer(t, informer)

	for range 2 {
		await(t, changes)
	}
	if got := index.Get(gangKey); got != (Counts{Present: 1, Live: 1, Bound: 1, Running: 1}) {
		t.Errorf("counts of the gang are %+v, want one running member", got)
	}

	byGroup, err := informer.GetIndexer().ByIndex(GroupIndex, gangKey.String())
	if err != nil {
		t.Fatal(err)
	}
	if len(byGroup) != 1 {
		t.Fatalf("the index finds %d pods of the gang, want 1", len(byGroup))
	}
	if kept := byGroup[0].(*corev1.Pod); len(kept.Spec.Containers) != 0 || len(kept.ManagedFields) != 0 {
		t.Error("the stored pod was not stripped")
	}
	if all := informer.GetStore().List(); len(all) != 2 {
		t.Errorf("%d pods are stored, want only the 2 with the label", len(all))
	}

	if err := client.CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := await(t, changes); got != "deleted a" {
		t.Fatalf("got %q, want the deletion of a", got)
	}
	if got := index.Get(gangKey); got != (Counts{}) {
		t.Errorf("counts after the deletion are %+v", got)
	}
}

func TestNewPodInformerAsksForLabelledPodsOnly(t *testing.T) {
	client := fake.NewClientset()
	selectors := make(chan string, 10)
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		selectors <- action.(clienttesting.ListAction).GetListRestrictions().Labels.String()
		return false, nil, nil
	})
	startInformer(t, NewPodInformer(client, 0))
	if got := await(t, selectors); got != v1alpha1.GroupLabel {
		t.Errorf("pods were listed with selector %q, want %q", got, v1alpha1.GroupLabel)
	}
}

func TestIndexByGroupRefusesOtherObjects(t *testing.T) {
	if _, err := indexByGroup(&corev1.Node{}); err == nil || !strings.Contains(err.Error(), "*v1.Node") {
		t.Errorf("error is %v, want one that names the type", err)
	}
	if keys, err := indexByGroup(newPod("a", inGang(""))); err != nil || len(keys) != 0 {
		t.Errorf("a pod without a gang is indexed by %v, error %v", keys, err)
	}
}

// groupServer serves a list of one PodGroup and a watch that adds another, to clients that ask for JSON.
func groupServer(t *testing.T) *httptest.Server {
	group := func(name, version string) *v1alpha1.PodGroup {
		group := newGroup(3)
		group.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodGroup"}
		group.Name, group.ResourceVersion = name, version
		group.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone"}}
		return group
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/scheduling.x-k8s.io/v1alpha1/podgroups" || strings.Contains(r.Header.Get("Accept"), "protobuf") {
			http.Error(w, fmt.Sprintf("unexpected %s accepting %s", r.URL.Path, r.Header.Get("Accept")), http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		query := r.URL.Query()
		switch {
		case query.Get("sendInitialEvents") == "true":
			// As an API server without streaming lists answers.
			w.WriteHeader(http.StatusUnprocessableEntity)
			json.NewEncoder(w).Encode(metav1.Status{Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
		case query.Get("watch") != "":
			raw, err := json.Marshal(group("late", "2"))
			if err != nil {
				t.Error(err)
			}
			json.NewEncoder(w).Encode(metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: raw}})
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			json.NewEncoder(w).Encode(v1alpha1.PodGroupList{
				TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodGroupList"},
				ListMeta: metav1.ListMeta{ResourceVersion: "1"},
				Items:    []v1alpha1.PodGroup{*group("early", "1")},
			})
		}
	}))
}

func TestNewGroupInformerListsAndWatches(t *testing.T) {
	server := groupServer(t)
	t.Cleanup(server.Close)
	cfg := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{
		ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON}}
	informer, err := NewGroupInformer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.ContentType != runtime.ContentTypeProtobuf || cfg.GroupVersion != nil {
		t.Error("the caller's config was changed")
	}
	seen := make(chan *v1alpha1.PodGroup, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { seen <- obj.(*v1alpha1.PodGroup) },
	}); err != nil {
		t.Fatal(err)
	}
	startInformer(t, informer)

	for _, want := range []string{"early", "late"} {
		got := await(t, seen)
		if got.Name != want || got.Spec.MinMember != 3 {
			t.Errorf("got group %s with minMember %d, want %s with 3", got.Name, got.Spec.MinMember, want)
		}
		if len(got.ManagedFields) != 0 {
			t.Errorf("group %s keeps its managed fields", got.Name)
		}
	}
}

func TestNewGroupInformerNeedsAUsableConfig(t *testing.T) {
	if _, err := NewGroupInformer(&rest.Config{Host: "http://%zz"}); err == nil || !strings.Contains(err.Error(), "PodGroups") {
		t.Errorf("error is %v, want one that says what the client was for", err)
	}
}

// await returns what the channel delivers, or fails the test if it delivers nothing.
func await[T any](t *testing.T, channel <-chan T) T {
	t.Helper()
	select {
	case value := <-channel:
		return value
	case <-time.After(30 * time.Second):
		t.Fatal("waited for 30 seconds in vain")
		panic("unreachable")
	}
}
