package container

import (
	"regexp"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/call/fault"
)

// noNetwork is the engine's name for no network.
const noNetwork = "none"

// Everything on the engine's command line is checked here, although the manifest was checked too: a
// value that looks like a flag would be read as one.
var (
	imageForm   = form(`^[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,511}$`)
	networkForm = form(`^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,254}$`)
	userForm    = form(`^[0-9]{1,10}:[0-9]{1,10}$`)
	runtimeForm = form(`^[A-Za-z0-9/][A-Za-z0-9_./+-]{0,254}$`)
)

// form returns a regular expression that is compiled at its first use: these are large, and most
// starts of the program need none.
func form(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// checkImage reports why ref cannot be the name of an image.
func checkImage(ref string) error {
	if !imageForm().MatchString(ref) {
		return fault.New(fault.RuntimePolicyInvalid, "%q is not the name of an image", ref)
	}
	return nil
}

// sharesNetwork reports whether a network is that of this machine, or of another container or pod.
func sharesNetwork(name string) bool {
	mode, _, _ := strings.Cut(name, ":")
	return mode == "host" || mode == "container" || mode == "ns" || mode == "pod"
}

// check reports why there can be no container with these options. The network of this machine, or of another container,
// would be shared.
func (o Options) check() error {
	if err := checkImage(o.Image); err != nil {
		return err
	}
	switch {
	case !networkForm().MatchString(o.Network):
		return fault.New(fault.RuntimePolicyInvalid, "%q is not the name of a network", o.Network)
	case sharesNetwork(o.Network) && !o.Shared:
		return fault.New(fault.RuntimePolicyInvalid, "network %s is not one of the container's own; only the operator can allow it", o.Network)
	case o.Sandboxed && o.Network != noNetwork:
		return fault.New(fault.RuntimePolicyInvalid, "network %s does not go with isolation_mode sandboxed, which has none", o.Network)
	case !userForm().MatchString(o.User):
		return fault.New(fault.RuntimePolicyInvalid, "user %q is not UID:GID, two numbers", o.User)
	case o.Runtime != "" && !runtimeForm().MatchString(o.Runtime):
		return fault.New(fault.RuntimePolicyInvalid, "%q is not the name or the path of an OCI runtime", o.Runtime)
	}
	return nil
}
