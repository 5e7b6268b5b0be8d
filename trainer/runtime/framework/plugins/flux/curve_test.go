package flux

import (
	"crypto/ecdh"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// decodeZ85 is the inverse of z85, by long division of whole numbers.
func decodeZ85(text string) []byte {
	var data []byte
	for i := 0; i < len(text); i += 5 {
		number := new(big.Int)
		for _, digit := range text[i : i+5] {
			number.Add(number.Mul(number, big.NewInt(85)), big.NewInt(int64(strings.IndexRune(z85Digits, digit))))
		}
		data = append(data, number.FillBytes(make([]byte, 4))...)
	}
	return data
}

func TestZ85(t *testing.T) {
	// The example of the specification.
	if got := z85([]byte{0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B}); got != "HelloWorld" {
		t.Errorf("got %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "data")
		if got := z85(data); len(got) != 40 || !slices.Equal(decodeZ85(got), data) {
			t.Fatalf("z85(%v) = %q", data, got)
		}
	})
}

func TestCurveSecret(t *testing.T) {
	job := trainJob(nil)
	secret := curveSecret(job)
	if secret.Name != "llm-flux-curve" || secret.Namespace != "research" || !metav1.IsControlledBy(secret, job) || !*secret.Immutable || len(secret.Data) != 0 {
		t.Errorf("secret = %+v", secret.ObjectMeta)
	}
	form := regexp.MustCompile(`^metadata\n    name = "llm"\ncurve\n    public-key = "(.{40})"\n    secret-key = "(.{40})"\n$`)
	var secrets []string
	for range 2 {
		data, err := newCertificate(job)
		if err != nil || len(data) != 1 {
			t.Fatalf("%d files, error %v", len(data), err)
		}
		keys := form.FindStringSubmatch(string(data["curve.cert"]))
		if keys == nil {
			t.Fatal("the certificate has another form")
		}
		private, err := ecdh.X25519().NewPrivateKey(decodeZ85(keys[2]))
		if err != nil || !slices.Equal(private.PublicKey().Bytes(), decodeZ85(keys[1])) {
			t.Errorf("the keys do not belong together: %v", err)
		}
		secrets = append(secrets, keys[2])
	}
	if secrets[0] == secrets[1] {
		t.Error("the key can be derived from the TrainJob")
	}
}
