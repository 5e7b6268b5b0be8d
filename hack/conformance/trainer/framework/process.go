package framework

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// process is a running muster-scheduler.
type process struct {
	command *exec.Cmd
	log     *os.File
	exited  chan struct{}
	err     error
}

// start runs a program that appends to a log.
func start(binary, log string, args ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	command := exec.Command(binary, args...)
	command.Stdout, command.Stderr = file, file
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", binary, err)
	}
	p := &process{command: command, log: file, exited: make(chan struct{})}
	go func() {
		p.err = command.Wait()
		close(p.exited)
	}()
	return p, nil
}

// ready asks the readiness probe. If the process has ended, waiting is in vain.
func (p *process) ready(probePort int) error {
	select {
	case <-p.exited:
		return gomega.StopTrying(fmt.Sprintf("muster-scheduler ended: %v; see %s", p.err, p.log.Name()))
	default:
	}
	response, err := http.Get("http://" + local(probePort) + "/readyz?verbose")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return fmt.Errorf("not ready: %s", body)
	}
	return nil
}

// stop ends the process, which must be running still.
func (p *process) stop() {
	select {
	case <-p.exited:
		ginkgo.Fail(fmt.Sprintf("muster-scheduler ended before the specs did: %v; see %s", p.err, p.log.Name()))
	default:
	}
	gomega.ExpectWithOffset(1, p.command.Process.Signal(syscall.SIGTERM)).To(gomega.Succeed())
	gomega.EventuallyWithOffset(1, p.exited, patience).Should(gomega.BeClosed())
	gomega.ExpectWithOffset(1, p.log.Close()).To(gomega.Succeed())
}

// freePort returns a port that was free a moment ago.
func freePort() int {
	listener, err := net.Listen("tcp", local(0))
	gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func local(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
