package statusserver

import (
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/trainjobstatus"
)

// maxBodyBytes bounds a report.
const maxBodyBytes = 64 << 10

// FieldOwner is the field manager of the reported progress. Another one than the controller's, so that
// neither removes what the other one wrote.
const FieldOwner = "trainer-status"

// handler takes reports. Paths, messages and codes are Kubeflow Trainer's: its clients read them.
type handler struct {
	tokens authenticator.Token
	client client.Client
}

// newHandler returns the handler of all paths.
func newHandler(tokens authenticator.Token, c client.Client) http.Handler {
	h := &handler{tokens: tokens, client: c}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+trainjobstatus.Path("{namespace}", "{name}"), h.report)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "Not found")
	})
	return mux
}

func (h *handler) report(w http.ResponseWriter, request *http.Request) {
	key := types.NamespacedName{Namespace: request.PathValue("namespace"), Name: request.PathValue("name")}
	logger := klog.FromContext(request.Context()).WithValues("trainJob", key)
	if request.ContentLength > maxBodyBytes {
		tooLarge(w)
		return
	}
	token := bearerToken(request)
	if token == "" {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "Forbidden")
		return
	}
	_, ok, err := h.tokens.AuthenticateToken(forTrainJob(request.Context(), key), token)
	if err != nil {
		logger.Error(err, "Checking the token of a progress report")
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error")
		return
	}
	if !ok {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "Forbidden")
		return
	}

	report := v1alpha1.UpdateTrainJobStatusRequest{}
	err = json.NewDecoder(http.MaxBytesReader(w, request.Body, maxBodyBytes)).Decode(&report)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		tooLarge(w)
		return
	}
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "Invalid payload")
		return
	}
	if report.TrainerStatus != nil {
		if err := h.write(request, key, report.TrainerStatus); err != nil {
			h.refuseWrite(w, logger, err)
			return
		}
	}
	respond(w, http.StatusOK, report)
}

// write replaces the progress of a TrainJob.
func (h *handler) write(request *http.Request, key types.NamespacedName, progress *v1alpha1.TrainerStatus) error {
	content, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(progress)
	if err != nil {
		return err
	}
	trainJob := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"trainerStatus": content}}}
	trainJob.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.TrainJobKind))
	trainJob.SetNamespace(key.Namespace)
	trainJob.SetName(key.Name)
	return h.client.Status().Apply(request.Context(), client.ApplyConfigurationFromUnstructured(trainJob),
		client.FieldOwner(FieldOwner), client.ForceOwnership)
}

func (h *handler) refuseWrite(w http.ResponseWriter, logger klog.Logger, err error) {
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		// The API server's own words name the field.
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
	case apierrors.IsNotFound(err):
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "Train job not found")
	default:
		logger.Error(err, "Writing a progress report")
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error")
	}
}

func tooLarge(w http.ResponseWriter) {
	refuse(w, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "Payload too large")
}

// refuse answers with a Status, as an API server would.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	respond(w, code, metav1.Status{Status: metav1.StatusFailure, Message: message, Reason: reason, Code: int32(code)})
}

func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// A client that is gone needs no answer.
	_ = json.NewEncoder(w).Encode(body)
}
