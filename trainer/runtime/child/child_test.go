package child

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

var trainJob = &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u-llm"}}

func wantedConfigMap(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: Metadata(trainJob, "llm-config"),
		Data: map[string]string{"file": text},
	}
}

func wantedSecret() *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: Metadata(trainJob, "llm-key"), Immutable: ptr.To(true),
	}
}

func jobSet(suspended bool) *jobsetv1alpha2.JobSet {
	return &jobsetv1alpha2.JobSet{ObjectMeta: Metadata(trainJob, "llm"), Spec: jobsetv1alpha2.JobSetSpec{Suspend: &suspended}}
}

// cluster is an API in memory that counts requests for the objects of this package.
type cluster struct {
	t *testing.T
	client.Client
	keeper        *Keeper
	reads, writes int
	secretBodies  int
	filled        int
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := apiruntime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), jobsetv1alpha2.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t}
	c.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			c.reads++
			if _, ok := object.(*corev1.Secret); ok {
				c.secretBodies++
			}
			return w.Get(ctx, key, object, opts...)
		},
		Create: func(ctx context.Context, w client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			c.writes++
			return w.Create(ctx, object, opts...)
		},
		Apply: func(ctx context.Context, w client.WithWatch, object apiruntime.ApplyConfiguration, opts ...client.ApplyOption) error {
			c.writes++
			return w.Apply(ctx, object, opts...)
		},
	}).Build()
	c.keeper = New(c.Client, c.Client)
	return c
}

func (c *cluster) sync(objects ...client.Object) error {
	return c.keeper.Sync(context.Background(), trainJob, objects, func() (map[string][]byte, error) {
		c.filled++
		return map[string][]byte{"key": []byte(strings.Repeat("k", c.filled))}, nil
	})
}

func (c *cluster) mustSync(objects ...client.Object) {
	c.t.Helper()
	if err := c.sync(objects...); err != nil {
		c.t.Fatal(err)
	}
}

// read returns the data of both objects, and whether they are the TrainJob's.
func (c *cluster) read() (file, key string) {
	c.t.Helper()
	configMap, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	for object, name := range map[client.Object]string{configMap: "llm-config", secret: "llm-key"} {
		err := c.Get(context.Background(), client.ObjectKey{Namespace: "research", Name: name}, object)
		if client.IgnoreNotFound(err) != nil {
			c.t.Fatal(err)
		}
		if err == nil && !metav1.IsControlledBy(object, trainJob) {
			c.t.Errorf("%s is not the TrainJob's", name)
		}
	}
	return configMap.Data["file"], string(secret.Data["key"])
}

func TestSyncMakesWhatIsMissingOnce(t *testing.T) {
	c := newCluster(t)
	wanted := wantedSecret()
	c.mustSync(wanted, wantedConfigMap("a"))
	if file, key := c.read(); file != "a" || key != "k" {
		t.Errorf("file %q, key %q", file, key)
	}
	if len(wanted.Data) != 0 {
		t.Error("the key is in the object that was asked for")
	}
	c.writes, c.secretBodies = 0, 0
	c.mustSync(wantedSecret(), wantedConfigMap("a"))
	if c.writes != 0 || c.filled != 1 || c.secretBodies != 0 {
		t.Errorf("%d writes, %d keys, %d secrets read", c.writes, c.filled, c.secretBodies)
	}
	c.mustSync(wantedSecret(), wantedConfigMap("b"))
	if file, key := c.read(); file != "b" || key != "k" {
		t.Errorf("after a change: file %q, key %q", file, key)
	}
}

func TestSyncWhileTheJobSetRuns(t *testing.T) {
	c := newCluster(t, jobSet(false))
	c.mustSync(wantedSecret(), wantedConfigMap("a"))
	if file, key := c.read(); file != "" || key != "" {
		t.Errorf("file %q, key %q: made beside running pods", file, key)
	}
	for name, live := range map[string]*jobsetv1alpha2.JobSet{
		"suspended":       jobSet(true),
		"somebody else's": {ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm"}},
	} {
		c := newCluster(t, live)
		c.mustSync(wantedSecret(), wantedConfigMap("a"))
		if file, key := c.read(); file != "a" || key != "k" {
			t.Errorf("%s: file %q, key %q", name, file, key)
		}
	}
}

func TestSyncNothing(t *testing.T) {
	c := newCluster(t)
	c.mustSync()
	if c.reads+c.writes != 0 {
		t.Errorf("%d requests for nothing", c.reads+c.writes)
	}
}

func TestSyncTakesNobodysObjects(t *testing.T) {
	now := metav1.Now()
	leaving := Metadata(trainJob, "")
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{"example.com/hold"}
	earlier := Metadata(&v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u-earlier"}}, "")
	theirs := metav1.ObjectMeta{Namespace: "research"}
	for name, tc := range map[string]struct {
		meta metav1.ObjectMeta
		want string
	}{
		"somebody's":            {theirs, "exists and does not belong to this TrainJob"},
		"an earlier TrainJob's": {earlier, "exists and does not belong to this TrainJob"},
		"leaving":               {leaving, "is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			secretMeta, configMapMeta := tc.meta, tc.meta
			secretMeta.Name, configMapMeta.Name = "llm-key", "llm-config"
			for kind, objects := range map[string][2]client.Object{
				"Secret":    {&corev1.Secret{ObjectMeta: secretMeta}, wantedSecret()},
				"ConfigMap": {&corev1.ConfigMap{ObjectMeta: configMapMeta}, wantedConfigMap("a")},
			} {
				c := newCluster(t, objects[0])
				err := c.sync(objects[1])
				if err == nil || !strings.Contains(err.Error(), kind+" research/"+objects[1].GetName()+" "+tc.want) {
					t.Errorf("error = %v", err)
				}
				if c.writes != 0 || c.filled != 0 {
					t.Errorf("%d writes, %d keys", c.writes, c.filled)
				}
			}
		})
	}
}

func TestSyncErrors(t *testing.T) {
	c := newCluster(t)
	err := c.keeper.Sync(context.Background(), trainJob, []client.Object{wantedSecret()}, func() (map[string][]byte, error) { return nil, errors.New("no entropy") })
	if err == nil || !strings.Contains(err.Error(), "filling Secret research/llm-key: no entropy") || c.writes != 0 {
		t.Errorf("error = %v, %d writes", err, c.writes)
	}
	if err := c.sync(&corev1.Pod{}); err == nil || !strings.Contains(err.Error(), "*v1.Pod is no ConfigMap") {
		t.Errorf("error = %v", err)
	}
}
