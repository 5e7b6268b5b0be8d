package statusserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	userinfo "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/trainjobstatus"
)

// tokenTTL is how long a pod that was recognised is not looked at again. A pod that is deleted may report for
// so long.
const tokenTTL = 30 * time.Second

// podAuthenticator recognises the pods of the TrainJob that the audience in the context is of.
type podAuthenticator struct {
	kube   kubernetes.Interface
	cached client.Reader
}

var _ authenticator.Token = (*podAuthenticator)(nil)

// newAuthenticator returns an authenticator that reviews tokens and reads pods through kube, and TrainJobs and
// JobSets through cached. It remembers what it recognised for tokenTTL.
func newAuthenticator(kube kubernetes.Interface, cached client.Reader) authenticator.Token {
	return tokencache.New(&podAuthenticator{kube: kube, cached: cached}, false, tokenTTL, 0)
}

// forTrainJob returns a context in which tokens are checked for one TrainJob. The audience is all that the
// cache of tokens passes on.
func forTrainJob(ctx context.Context, key types.NamespacedName) context.Context {
	return authenticator.WithAudiences(ctx, authenticator.Audiences{trainjobstatus.Audience(key.Namespace, key.Name)})
}

// trainJobOf returns the TrainJob of an audience; no part of a name has a slash.
func trainJobOf(audience string) (types.NamespacedName, bool) {
	parts := strings.Split(audience, "/")
	if len(parts) != 7 {
		return types.NamespacedName{}, false
	}
	key := types.NamespacedName{Namespace: parts[3], Name: parts[5]}
	return key, trainjobstatus.Audience(key.Namespace, key.Name) == audience
}

// AuthenticateToken implements authenticator.Token. A token is good if the API server issued it for the
// TrainJob, to a pod that is still there and that the TrainJob's JobSet made. The error says that the API
// server could not be asked.
func (a *podAuthenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	audiences, _ := authenticator.AudiencesFrom(ctx)
	key, ok := trainJobOf(only(audiences))
	if !ok {
		return nil, false, nil
	}
	review, err := a.kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("reviewing a token: %w", err)
	}
	refusal, err := a.refusal(ctx, key, &review.Status)
	if err != nil {
		return nil, false, err
	}
	if refusal != "" {
		klog.FromContext(ctx).V(2).Info("Refusing a progress report", "trainJob", key, "reason", refusal, "user", review.Status.User.Username)
		return nil, false, nil
	}
	user := &review.Status.User
	return &authenticator.Response{Audiences: audiences, User: &userinfo.DefaultInfo{Name: user.Username, UID: user.UID}}, true, nil
}

// refusal says why a token may not report on a TrainJob, nothing if it may.
func (a *podAuthenticator) refusal(ctx context.Context, key types.NamespacedName, status *authenticationv1.TokenReviewStatus) (string, error) {
	if !status.Authenticated {
		return "the token is not valid: " + status.Error, nil
	}
	if only(status.Audiences) != trainjobstatus.Audience(key.Namespace, key.Name) {
		return "the token is for another audience", nil
	}
	namespace, _, err := serviceaccount.SplitUsername(status.User.Username)
	if err != nil || namespace != key.Namespace {
		return "the token is of no service account of the TrainJob's namespace", nil
	}
	name, uid := only(status.User.Extra[serviceaccount.PodNameKey]), only(status.User.Extra[serviceaccount.PodUIDKey])
	if name == "" || uid == "" {
		return "the token is bound to no pod", nil
	}
	pod, err := a.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "pod " + name + " is gone", nil
	}
	if err != nil {
		return "", fmt.Errorf("getting pod %s/%s: %w", namespace, name, err)
	}
	if string(pod.UID) != uid {
		return "pod " + name + " is another one", nil
	}
	belongs, err := a.belongs(ctx, pod, key)
	if err != nil || belongs {
		return "", err
	}
	return "pod " + name + " does not belong to the TrainJob", nil
}

// belongs tells whether a Job of the TrainJob's JobSet made the pod. Names are not enough: the pod may be a
// remnant of a TrainJob of the same name.
func (a *podAuthenticator) belongs(ctx context.Context, pod *corev1.Pod, key types.NamespacedName) (bool, error) {
	trainJob, jobSet := &v1alpha1.TrainJob{}, &jobsetv1alpha2.JobSet{}
	for _, object := range []client.Object{trainJob, jobSet} {
		if err := a.cached.Get(ctx, key, object); apierrors.IsNotFound(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("getting %T %s: %w", object, key, err)
		}
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return metav1.IsControlledBy(jobSet, trainJob) &&
		pod.Labels[jobsetv1alpha2.JobSetNameKey] == jobSet.Name &&
		pod.Labels[jobsetv1alpha2.JobSetUIDKey] == string(jobSet.UID) &&
		owner != nil && owner.Kind == "Job" && strings.HasPrefix(owner.APIVersion, batchv1.GroupName+"/"), nil
}

// only returns the one value, empty if there are others or none.
func only(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// bearerToken returns the token of a request, empty if it has none.
func bearerToken(request *http.Request) string {
	scheme, token, ok := strings.Cut(strings.TrimSpace(request.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "Bearer") || strings.ContainsAny(token, " \t") {
		return ""
	}
	return token
}
