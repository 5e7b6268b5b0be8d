package controlplane

import (
	"errors"
	"flag"
	"os"
	"sync"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func init() {
	// Several components of this process apply the same logging configuration.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
}

// logSink is the one destination of what all components log. Components have goroutines that outlive
// them for a moment, and klog ends the process when a write fails, so a closed sink swallows writes.
type logSink struct {
	name string

	mu     sync.Mutex
	file   *os.File
	closed bool
}

// redirectLogs sends the process's klog and controller-runtime logs to a file, to which it appends.
func redirectLogs(name string) (*logSink, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	sink := &logSink{name: name, file: file}
	if err := klogToOutput(); err != nil {
		_ = file.Close()
		return nil, err
	}
	klog.SetOutput(sink)
	ctrllog.SetLogger(klog.Background())
	return sink, nil
}

// klogToOutput makes klog write to what SetOutput names instead of standard error. It does so once:
// the flags are not safe to change while something logs.
var klogToOutput = sync.OnceValue(func() error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	return errors.Join(
		flags.Set("logtostderr", "false"),
		flags.Set("alsologtostderr", "false"),
		flags.Set("stderrthreshold", "FATAL"),
	)
})

func (s *logSink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return len(p), nil
	}
	return s.file.Write(p)
}

func (s *logSink) Close() {
	klog.Flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	_ = s.file.Close()
}
