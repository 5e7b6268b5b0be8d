package mpi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/child"
)

const (
	sshAuthVolumeName = "mpi-ssh-auth"
	sshPublicKey      = "ssh-publickey"
)

// Modes of the mounted keys. The group may read the private one, because the user of the image may have no more
// than the pod's fsGroup in common with the volume.
const (
	sshDefaultMode    int32 = 0o400
	sshPrivateKeyMode int32 = 0o640
	sshPublicKeyMode  int32 = 0o644
)

func sshAuthName(trainJob *v1alpha1.TrainJob) string {
	return trainJob.Name + "-mpi-ssh-auth"
}

// sshAuthVolume mounts the keys under the names that OpenSSH's client and server look for. id_rsa is one of
// them, although the key is none of RSA.
func sshAuthVolume(trainJob *v1alpha1.TrainJob) corev1.Volume {
	return corev1.Volume{Name: sshAuthVolumeName, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName:  sshAuthName(trainJob),
		DefaultMode: ptr.To(sshDefaultMode),
		Items: []corev1.KeyToPath{
			{Key: corev1.SSHAuthPrivateKey, Path: "id_rsa", Mode: ptr.To(sshPrivateKeyMode)},
			{Key: sshPublicKey, Path: "id_rsa.pub", Mode: ptr.To(sshPublicKeyMode)},
			{Key: sshPublicKey, Path: "authorized_keys", Mode: ptr.To(sshPublicKeyMode)},
		},
	}}}
}

// sshAuthSecret returns the Secret without its data.
func sshAuthSecret(trainJob *v1alpha1.TrainJob) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: child.Metadata(trainJob, sshAuthName(trainJob)),
		Type:       corev1.SecretTypeSSHAuth,
		Immutable:  ptr.To(true),
	}
}

// newKeys returns a new pair of keys, for ECDSA on the curve P-521.
func newKeys() (map[string][]byte, error) {
	private, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating an SSH key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("encoding the private SSH key: %w", err)
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("encoding the public SSH key: %w", err)
	}
	return map[string][]byte{
		corev1.SSHAuthPrivateKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		sshPublicKey:             ssh.MarshalAuthorizedKey(public),
	}, nil
}
