package flux

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/child"
)

const curveKey = "curve.cert"

func curveName(trainJob *v1alpha1.TrainJob) string {
	return trainJob.Name + "-flux-curve"
}

// curveSecret returns the Secret without its data.
func curveSecret(trainJob *v1alpha1.TrainJob) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: child.Metadata(trainJob, curveName(trainJob)),
		Immutable:  ptr.To(true),
	}
}

// newCertificate returns a new certificate by which the brokers trust each other, in the form of ZeroMQ's CURVE
// (which is X25519, https://rfc.zeromq.org/spec/26). It is random: what could be derived from the TrainJob would
// be no secret.
func newCertificate(trainJob *v1alpha1.TrainJob) (map[string][]byte, error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a CURVE key: %w", err)
	}
	certificate := fmt.Sprintf("metadata\n    name = %q\ncurve\n    public-key = %q\n    secret-key = %q\n",
		trainJob.Name, z85(private.PublicKey().Bytes()), z85(private.Bytes()))
	return map[string][]byte{curveKey: []byte(certificate)}, nil
}

// z85Digits are the digits of ZeroMQ's base 85 (https://rfc.zeromq.org/spec/32); a certificate can hold all of
// them between quotes.
const z85Digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

// z85 encodes data whose length is a multiple of four: each four bytes become five digits, the highest first.
func z85(data []byte) string {
	encoded := make([]byte, 0, len(data)/4*5)
	for ; len(data) >= 4; data = data[4:] {
		value := binary.BigEndian.Uint32(data)
		var digits [5]byte
		for i := len(digits) - 1; i >= 0; i-- {
			digits[i] = z85Digits[value%85]
			value /= 85
		}
		encoded = append(encoded, digits[:]...)
	}
	return string(encoded)
}
