package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/yamldoc"
)

// Config says how to reach a cluster, and as whom. It is the part of a kubeconfig that one context names.
type Config struct {
	cluster cluster
	user    user
}

// The fields of a kubeconfig. Those that kubectl alone uses are missing.
type (
	kubeconfig struct {
		Current  text              `json:"current-context"`
		Contexts []named[binding]  `json:"contexts"`
		Clusters []named[*cluster] `json:"clusters"`
		Users    []named[*user]    `json:"users"`
	}

	// named has a name, and its value under one of three keys.
	named[T any] struct {
		Name    text `json:"name"`
		Context T    `json:"context"`
		Cluster T    `json:"cluster"`
		User    T    `json:"user"`
	}

	binding struct {
		Cluster text `json:"cluster"`
		User    text `json:"user"`
	}

	cluster struct {
		Server             string          `json:"server"`
		ServerName         string          `json:"tls-server-name"`
		Insecure           bool            `json:"insecure-skip-tls-verify"`
		CAFile             string          `json:"certificate-authority"`
		CA                 []byte          `json:"certificate-authority-data"`
		Proxy              string          `json:"proxy-url"`
		DisableCompression bool            `json:"disable-compression"`
		Extensions         json.RawMessage `json:"extensions"`
	}

	user struct {
		CertFile string              `json:"client-certificate"`
		Cert     []byte              `json:"client-certificate-data"`
		KeyFile  string              `json:"client-key"`
		Key      []byte              `json:"client-key-data"`
		Token    text                `json:"token"`
		TokenAt  string              `json:"tokenFile"`
		Name     text                `json:"username"`
		Password text                `json:"password"`
		As       text                `json:"as"`
		AsUID    text                `json:"as-uid"`
		AsGroups []text              `json:"as-groups"`
		AsExtra  map[string][]string `json:"as-user-extra"`
		Provider *struct {
			Name string `json:"name"`
		} `json:"auth-provider"`
		Exec *plugin `json:"exec"`
	}

	// plugin is a command that prints credentials.
	plugin struct {
		Command     string                       `json:"command"`
		Args        []text                       `json:"args"`
		Env         []struct{ Name, Value text } `json:"env"`
		Version     string                       `json:"apiVersion"`
		Hint        string                       `json:"installHint"`
		TellCluster bool                         `json:"provideClusterInfo"`
		Interactive string                       `json:"interactiveMode"`
	}
)

// text is a string that YAML may have without quotes: a name or a token of digits.
type text string

// UnmarshalJSON accepts a string, a number and a boolean.
func (t *text) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case '"':
		return json.Unmarshal(raw, (*string)(t))
	case '{', '[':
		return errors.New("want text")
	case 'n':
		return nil
	}
	*t = text(raw)
	return nil
}

// ErrNone is the error of Load if there is no configuration at all.
var ErrNone = errors.New("no cluster is configured")

// Load reads the configuration that kubectl would use: the file, or else those of $KUBECONFIG, or else
// ~/.kube/config, and if they say nothing that of the pod that Orla runs in. If context is "", it is the
// current one. Errors do not quote files.
func Load(file, context string) (*Config, error) {
	whole, err := readAll(file)
	if err != nil {
		return nil, err
	}
	c, err := whole.choose(context)
	if errors.Is(err, ErrNone) {
		if inside, ok := insidePod(); ok {
			return inside, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return c, c.check()
}

// Files returns the files that Load reads, whether they exist or not.
func Files(file string) []string {
	if file != "" {
		return []string{file}
	}
	if list := os.Getenv("KUBECONFIG"); list != "" {
		return filepath.SplitList(list)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil // without a home there is no file
	}
	return []string{filepath.Join(home, ".kube", "config")}
}

// readAll reads all files. Of values with the same name, the first counts.
func readAll(file string) (*kubeconfig, error) {
	if file != "" {
		if _, err := os.Stat(file); err != nil {
			return nil, err
		}
	}
	whole := &kubeconfig{}
	for _, path := range Files(file) {
		one, err := readOne(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if whole.Current == "" {
			whole.Current = one.Current
		}
		whole.Contexts = append(whole.Contexts, one.Contexts...)
		whole.Clusters = append(whole.Clusters, one.Clusters...)
		whole.Users = append(whole.Users, one.Users...)
	}
	return whole, nil
}

func readOne(path string) (*kubeconfig, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	raw, err := yamldoc.Whole(path, data, yamldoc.Options{Hide: true, MaxSize: 16 << 20})
	if err != nil {
		return nil, fmt.Errorf("%s: it is not valid YAML", path) // err may quote the file
	}
	c := &kubeconfig{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("%s: it is not a kubeconfig: a value has the wrong type", path)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	absolute := func(name *string) {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(filepath.Dir(path), *name)
		}
	}
	for _, n := range c.Clusters {
		if n.Cluster != nil {
			absolute(&n.Cluster.CAFile)
		}
	}
	for _, n := range c.Users {
		if n.User == nil {
			continue
		}
		absolute(&n.User.CertFile)
		absolute(&n.User.KeyFile)
		absolute(&n.User.TokenAt)
		if n.User.Exec != nil && strings.ContainsRune(n.User.Exec.Command, filepath.Separator) {
			absolute(&n.User.Exec.Command)
		}
	}
	return c, nil
}

// choose returns the cluster and the user of a context.
func (k *kubeconfig) choose(context string) (*Config, error) {
	if context == "" {
		context = string(k.Current)
	}
	i := slices.IndexFunc(k.Contexts, func(n named[binding]) bool { return string(n.Name) == context })
	switch {
	case i < 0 && context != "":
		return nil, fmt.Errorf("context %q does not exist", context)
	case i < 0:
		return nil, ErrNone
	}
	to, c := k.Contexts[i].Context, &Config{}
	j := slices.IndexFunc(k.Clusters, func(n named[*cluster]) bool { return n.Name == to.Cluster && n.Cluster != nil })
	switch {
	case j < 0 && to.Cluster != "":
		return nil, fmt.Errorf("cluster %q does not exist", to.Cluster)
	case j < 0:
		return nil, ErrNone
	case k.Clusters[j].Cluster.Server == "":
		return nil, fmt.Errorf("no server found for cluster %q", to.Cluster)
	}
	c.cluster = *k.Clusters[j].Cluster
	j = slices.IndexFunc(k.Users, func(n named[*user]) bool { return n.Name == to.User && n.User != nil })
	switch {
	case j >= 0:
		c.user = *k.Users[j].User
	case to.User != "":
		return nil, fmt.Errorf("user %q does not exist", to.User)
	}
	return c, nil
}

// check reports what contradicts itself or is missing.
func (c *Config) check() error {
	u := &c.user
	cert := u.CertFile != "" || len(u.Cert) > 0
	switch {
	case c.cluster.Insecure && (c.cluster.CAFile != "" || len(c.cluster.CA) > 0):
		return errors.New("a certificate authority and insecure-skip-tls-verify exclude each other")
	case cert != (u.KeyFile != "" || len(u.Key) > 0):
		return errors.New("a client certificate and its key belong together")
	case u.Token != "" && u.Name+u.Password != "":
		return errors.New("it has a token and a password; one is allowed")
	case u.As == "" && (u.AsUID != "" || len(u.AsGroups) > 0 || len(u.AsExtra) > 0):
		return errors.New("as-uid, as-groups and as-user-extra need as")
	case u.Provider != nil:
		return fmt.Errorf("no auth provider %q is built in; use exec", u.Provider.Name)
	case u.Exec != nil:
		return u.Exec.check()
	}
	return nil
}

// The files of a pod's service account.
const (
	podToken     = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path
	podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	podCA        = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// PodNamespace returns the namespace of the pod that this process runs in; "" if it runs in none.
func PodNamespace() string {
	if _, ok := insidePod(); !ok {
		return ""
	}
	raw, err := os.ReadFile(podNamespace)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// insidePod returns the configuration of the pod that this process runs in; false if it runs in none.
func insidePod() (c *Config, ok bool) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, false
	}
	if info, missing := os.Stat(podToken); missing != nil || info.IsDir() {
		return nil, false
	}
	c = &Config{user: user{TokenAt: podToken}}
	c.cluster.Server = "https://" + net.JoinHostPort(host, port)
	if _, err := os.Stat(podCA); err == nil {
		c.cluster.CAFile = podCA
	}
	return c, true
}
