package apply

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// deniedByWebhook is in the message of every request that a webhook denied.
const deniedByWebhook = "denied the request"

// Refused tells whether an object was refused for what it says, by the API server's own validation, by an
// admission policy or by a webhook: they will not think otherwise of the same object later. A lack of rights
// or of quota, and a webhook that could not answer, are no refusals.
func Refused(err error) bool {
	if apierrors.IsInvalid(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; {
	case code == http.StatusConflict, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return false
	case code < http.StatusBadRequest, code >= http.StatusInternalServerError:
		return false
	}
	return strings.Contains(status.Status().Message, deniedByWebhook)
}
