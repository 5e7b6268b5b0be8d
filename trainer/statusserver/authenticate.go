package statusserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/trainjobstatus"
)

// podAuthenticator recognises the pods of one TrainJob, the one whose key the context carries, by their tokens.
type podAuthenticator struct {
	kube   kubernetes.Interface
	cached client.Reader
}

var _ authenticator.Token = (*podAuthenticator)(nil)

// trainJobKey is the key of the TrainJob in a context.
type trainJobKey struct{}

// forTrainJob returns a context in which tokens are checked for one TrainJob. A cache of authenticated
// tokens tells TrainJobs apart by the audience.
func forTrainJob(ctx context.Context, key types.NamespacedName) context.Context {
	ctx = authenticator.WithAudiences(ctx, authenticator.Audiences{trainjobstatus.Audience(key.Namespace, key.Name)})
	return context.WithValue(ctx, trainJobKey{}, key)
}

// AuthenticateToken implements authenticator.Token. A token is good if the API server issued it for the
// TrainJob, to a pod that is still there and that the TrainJob's JobSet made. The error says that the API
// server could not be asked.
func (a *podAuthenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	key, _ := ctx.Value(trainJobKey{}).(types.NamespacedName)
	audience := trainjobstatus.Audience(key.Namespace, key.Name)
	review, err := a.kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("reviewing a token: %w", err)
	}
	status := &review.Status
	if !status.Authenticated || len(status.Audiences) != 1 || status.Audiences[0] != audience {
		return nil, false, nil
	}
	namespace, _, err := serviceaccount.SplitUsername(status.User.Username)
	if err != nil || namespace != key.Namespace {
		return nil, false, nil
	}
	name, uid := only(status.User.Extra[serviceaccount.PodNameKey]), only(status.User.Extra[serviceaccount.PodUIDKey])
	if name == "" || uid == "" {
		// Not bound to a pod, so that nobody knows who holds it.
		return nil, false, nil
	}
	pod, err := a.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("getting pod %s/%s: %w", namespace, name, err)
	}
	if string(pod.UID) != uid {
		return nil, false, nil
	}
	belongs, err := a.belongs(ctx, pod, key)
	if err != nil || !belongs {
		return nil, false, err
	}
	return &authenticator.Response{
		Audiences: authenticator.Audiences{audience},
		User:      &user.DefaultInfo{Name: status.User.Username, UID: status.User.UID},
	}, true, nil
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
