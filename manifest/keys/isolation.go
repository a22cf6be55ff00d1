package keys

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// Isolation say where the processes of a simple tool, a capsule or an
// McpServer live (SPEC-TOOLS 7.6).
type Isolation struct {
	Mode       manifest.IsolationMode
	Image      string
	PullSecret string
	Network    string
	Resources  Resources
	Capsule    bool // the process is one of a capsule
}

// Isolation checks the keys of runtime that say where processes live. namespace
// is where secrets are looked for.
func (d *Description) Isolation(k Isolation, namespace string) manifest.Isolation {
	i := manifest.Isolation{Mode: k.Mode, Image: k.Image}
	switch k.Mode {
	case manifest.IsolationKubernetes:
		d.checkPod(k)
	case manifest.IsolationWASM:
		d.Fault("runtime", "isolation_mode", "wasm is for tools of type wasm")
	case "", manifest.IsolationNone, manifest.IsolationSandboxed, manifest.IsolationContainer:
	}
	for _, key := range []string{"image", "image_pull_secret", "network"} {
		if d.given("runtime", key) && !i.Isolated() {
			d.Fault("runtime", key, "is only for isolated tools, and this one is not isolated: set isolation_mode, or remove the key")
			return i
		}
	}
	if k.Image != "" {
		if err := CheckImage(k.Image); err != nil {
			d.Fault("runtime", "image", "%v", err)
		}
	}
	if d.given("runtime", "image_pull_secret") {
		ref, err := secret.ParseRef(k.PullSecret, namespace)
		switch {
		case err != nil:
			d.Fault("runtime", "image_pull_secret", "%v", err)
		case k.Image == "":
			d.Fault("runtime", "image_pull_secret", "is for image, which is not given")
		}
		i.PullSecret = ref
	}
	if d.given("runtime", "network") {
		if err := SetNetwork(&i, k.Network); err != nil {
			d.Fault("runtime", "network", "%v", err)
		}
	}
	d.CheckBounds(k.Resources, func(key string) string { return d.key("runtime", "resources."+key) })
	i.Resources = manifest.Resources{Memory: int64(k.Resources.Memory), CPUs: k.Resources.CPUs, Pids: k.Resources.Pids}
	return i
}

// checkPod refuses what a Pod of Kubernetes cannot do. A Pod is an image: nothing of this machine is in it.
func (d *Description) checkPod(k Isolation) {
	switch {
	case !k.Capsule:
		d.Fault("runtime", "isolation_mode", "kubernetes is for capsules, MCP servers and tools of type cli: a pod runs an image, and this file would have to be in it")
		return
	case k.Image == "":
		d.Fault("runtime", "image", "is required with isolation_mode kubernetes: a capsule in a Pod is an image; build one that has its files, and name it here")
	}
	if k.Resources.Pids != 0 {
		d.Fault("runtime", "resources.pids", "does not go with isolation_mode kubernetes: the kubelet of the node limits processes (podPidsLimit)")
	}
	if d.Runtime.HotLoad.Mode == manifest.HotLoadReplace {
		d.Fault("runtime", "hot_load.mode", "replace does not go with isolation_mode kubernetes, where a capsule has one Pod: the next one begins when it is gone; set restart")
	}
}

const (
	// leastMemory is less than any interpreter needs; who writes 256 means MiB.
	leastMemory = 1 << 20
	// leastCPUs is what the kernel can tell from nothing, and mostCPUs more than there are.
	leastCPUs, mostCPUs = 0.01, 4096
	mostPids            = 1 << 22 // that Linux can have
)

// CheckBounds checks the limits that are given. at says where the file has one.
func (d *Description) CheckBounds(k Resources, at func(string) string) {
	if key := at("memory"); d.Doc.Has(key) && k.Memory < leastMemory {
		d.Doc.Faultf(key, "must be at least 1MiB, got %s", k.Memory)
	}
	if key := at("cpus"); d.Doc.Has(key) && !(k.CPUs >= leastCPUs && k.CPUs <= mostCPUs) {
		d.Doc.Faultf(key, "must be between %v and %d, got %v", leastCPUs, mostCPUs, k.CPUs)
	}
	if key := at("pids"); d.Doc.Has(key) && (k.Pids < 1 || k.Pids > mostPids) {
		d.Doc.Faultf(key, "must be between 1 and %d, got %d", mostPids, k.Pids)
	}
}

// SetNetwork takes a network that a file gives. It is said to an engine as it
// is, so that it must not be mistaken for anything else.
func SetNetwork(i *manifest.Isolation, name string) error {
	switch {
	case !networkName().MatchString(name):
		return errors.New("must be the name of a network: letters, digits and _ . -, with no - at the front; none means no network")
	case i.Mode == manifest.IsolationKubernetes && name != "none" && name != "cluster":
		return errors.New("must be none or cluster with isolation_mode kubernetes: the cluster decides what a pod can reach")
	case !i.Isolated():
		return errors.New("does not go with isolation_mode none, where a process has the machine's network")
	case name == "none":
		i.Network = ""
	case i.Mode == manifest.IsolationSandboxed:
		return errors.New("does not go with isolation_mode sandboxed, which has no network; container may have one")
	default:
		i.Network = name
	}
	return nil
}

// networkName has no colon and no slash: container:ID and ns:PATH are the
// networks of somebody else.
var networkName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`) })

// imageName is the grammar of references to images: [HOST[:PORT]/]PATH[:TAG][@DIGEST].
var imageName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?/)?` +
		`[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*` +
		`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$`)
})

// CheckImage says why an engine is not given a name of an image as it is.
func CheckImage(name string) error {
	if len(name) > 512 || !imageName().MatchString(name) {
		return fmt.Errorf("must be the name of an image, such as docker.io/library/alpine:3.20: [HOST/]NAME[:TAG][@sha256:DIGEST], got %q", name)
	}
	return nil
}

// PinnedImage is an image by a digest in place of its tag, so that it is always the same one. An image that is named by a digest stays as it is.
func PinnedImage(name, digest string) string {
	if strings.Contains(name, "@") {
		return name
	}
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		name = name[:at]
	}
	return name + "@" + digest
}

// MissingInterpreter says what it means that an interpreter is not on this machine, for a
// tool that is isolated: in a container nothing, since the image is to have it.
func MissingInterpreter(i manifest.Isolation, err error) (warning, fault error) {
	switch {
	case err == nil || i.Mode == manifest.IsolationContainer || i.Mode == manifest.IsolationKubernetes:
		return nil, nil
	case i.Mode == manifest.IsolationSandboxed:
		return fmt.Errorf("%w; a sandbox that is made of this machine has it no more", err), nil
	}
	return nil, err
}

// warnOfIdleIsolation tells of keys that do not do what their author expects.
func (d *Description) warnOfIdleIsolation(t *manifest.Tool) {
	isolated := t.Isolation.Isolated()
	if t.Kind == manifest.Simple && !isolated && d.given("runtime", "resources") { // nobody must think that there is a limit where there is none
		d.Fault("runtime", "resources", "limits only capsules and isolated tools, and this is a simple tool that is not isolated: set isolation_mode, or remove the key")
	}
	if isolated && d.given("runtime", "inherit_env") {
		d.warn("inherit_env", "has no effect with isolation_mode %s, which passes on none of Orla's variables", t.Isolation.Mode)
	}
}
