// Package etcdlog keeps the API server's etcd client off the terminal.
//
// The client's logger is made while packages are initialized, writes to standard error and cannot be
// replaced: every clean shutdown would print a page of cancelled requests. It copies a variable,
// though, which this package changes first. Go initializes packages in the order of their import paths
// as far as their imports allow, so this one, which imports little else, comes before k8s.io/apiserver.
package etcdlog

import (
	"os"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
)

func init() {
	logutil.DefaultZapLoggerConfig.OutputPaths = []string{os.DevNull}
	logutil.DefaultZapLoggerConfig.ErrorOutputPaths = []string{os.DevNull}
}
