package wiring

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/cluster/resources"
	"github.com/orla-project/orla/internal/service/secret"
)

// openCluster returns the custom resources that cfg asks for; nil for none. It sends nothing.
func openCluster(cfg *config.Loaded, serves bool, log *slog.Logger) (*resources.Resources, error) {
	if !cfg.Kubernetes || !serves || cfg.Only != "" {
		return nil, nil
	}
	reach, err := kubeapi.Load(cfg.K8sKubeconfig, cfg.K8sContext)
	if err != nil {
		return nil, whichCluster(cfg, "kubernetes", err)
	}
	client, err := kubeapi.New(reach, "orla/"+version.Version(), func(next http.RoundTripper) http.RoundTripper { return next })
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	dir, err := resourcesDir(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	host, _ := os.Hostname() // in a pod its name
	return resources.New(resources.Options{
		Client: client, Namespace: cmp.Or(cfg.KubernetesNamespace, kubeapi.PodNamespace(), secret.DefaultNamespace),
		Dir: dir, Holder: cmp.Or(host, "orla") + "_" + rand.Text(), Log: log,
	}), nil
}

// whichCluster returns what to do about an error of kubeapi.Load, for a key that needs a cluster.
func whichCluster(cfg *config.Loaded, key string, err error) error {
	switch {
	case errors.Is(err, kubeapi.ErrNone):
		err = errors.New("no cluster is configured: name a kubeconfig with tool_k8s_kubeconfig or $KUBECONFIG, write ~/.kube/config, or run Orla in a pod")
	case cfg.K8sKubeconfig != "" && errors.Is(err, fs.ErrNotExist):
		key = "tool_k8s_kubeconfig"
	}
	return cfg.At(key, err)
}

// resourcesDir returns the folder that paths in resources are relative to: the tools folder, or an empty one.
func resourcesDir(cfg *config.Loaded) (string, error) {
	tools := config.Absolute(cfg.ToolsDir)
	if info, err := os.Stat(tools); err == nil && info.IsDir() {
		return tools, nil
	}
	empty := config.StateDir(cfg, "no-tools")
	if empty == "" {
		return tools, nil
	}
	empty = config.Absolute(empty)
	return empty, os.MkdirAll(empty, 0o700)
}

// secretsOf returns how Secrets of the cluster are read; nil for none.
func secretsOf(cluster *resources.Resources) func(namespace, name string) (map[string]secret.Value, bool, error) {
	if cluster == nil {
		return nil
	}
	return cluster.Secret
}
