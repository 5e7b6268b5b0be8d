package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The commands ask the API server of the flags, and about the namespace of the kubeconfig.
func TestCommandsAskTheCluster(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		http.Error(w, "not today", http.StatusForbidden)
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"here","clusters":[{"name":"c","cluster":{"server":"`+
		server.URL+`"}}],"contexts":[{"name":"here","context":{"cluster":"c","namespace":"team-a"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"explain", "llm"}, {"why", "pod/llm-0", "-n", "team-b"}, {"queue"}, {"queue", "-A"}} {
		asked = nil
		if _, err := runCommand(append(args, "--kubeconfig", kubeconfig)...); err == nil || !strings.Contains(err.Error(), "not today") {
			t.Errorf("%v: %v", args, err)
		}
		if len(asked) == 0 {
			t.Errorf("%v asks nobody", args)
		}
	}
	for _, args := range [][]string{{"explain", "llm"}, {"queue"}} {
		if _, err := runCommand(append(args, "--kubeconfig", filepath.Join(t.TempDir(), "none"))...); err == nil || !strings.Contains(err.Error(), "none") {
			t.Errorf("%v without a kubeconfig: %v", args, err)
		}
	}
	if _, err := runCommand("queue", "-o", "yaml", "--kubeconfig", kubeconfig); err == nil || err.Error() != `there is no output "yaml"; there is wide` {
		t.Errorf("%v", err)
	}
	if _, err := runCommand("explain"); err == nil {
		t.Error("explain explains nothing")
	}
}
