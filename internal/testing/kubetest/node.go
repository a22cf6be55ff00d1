package kubetest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/testing/needs"
)

// Image gives the node an image of files, with what a Dockerfile would say of it (Entrypoint, User, Env).
// A file's name has no slash in front; all may be executed.
func (c *Cluster) Image(name string, files map[string][]byte, config map[string]any) {
	c.t.Helper()
	needs.Programs(c.t, "ctr")
	image := filepath.Join(c.t.TempDir(), "image.tar")
	if err := os.WriteFile(image, archive(c, name, files, config), 0o600); err != nil {
		c.t.Fatal(err)
	}
	socket := filepath.Join(c.Dir, "ctd", "c.sock")
	load := exec.CommandContext(c.t.Context(), "ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", image)
	if out, err := load.CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %v\n%s", load, err, out)
	}
}

// archive returns an image in the format of "docker save".
func archive(c *Cluster, name string, files map[string][]byte, config map[string]any) []byte {
	c.t.Helper()
	content := packed(c, files, 0o755)
	digest := sha256.Sum256(content)
	about, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(digest[:])}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	list, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		c.t.Fatal(err)
	}
	return packed(c, map[string][]byte{"config.json": about, "layer.tar": content, "manifest.json": list}, 0o644)
}

// packed returns files as a tar.
func packed(c *Cluster, files map[string][]byte, mode int64) []byte {
	c.t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(files[name]))}); err != nil {
			c.t.Fatal(err)
		}
		if _, err := w.Write(files[name]); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		c.t.Fatal(err)
	}
	return out.Bytes()
}

// NodeName is the name of the node, and one of those in the certificate of the API server.
const NodeName = "orla-node"

// ServeAPI lets Pods reach the API server, which listens on loopback: no kube-proxy runs here. It returns the
// address at which they reach it, for NodeName.
func (c *Cluster) ServeAPI() (ip, port string) {
	c.t.Helper()
	needs.Programs(c.t, "ip")
	bridge := "orla-k" + strconv.Itoa(c.port)
	// The first Pod would make the bridge in the same way.
	ip = "10.244." + strconv.Itoa(c.port/16%250) + ".1"
	for _, args := range [][]string{{"link", "add", bridge, "type", "bridge"}, {"addr", "add", ip + "/24", "dev", bridge}, {"link", "set", bridge, "up"}} {
		if out, err := exec.CommandContext(c.t.Context(), "ip", args...).CombinedOutput(); err != nil && !strings.Contains(string(out), "File exists") {
			c.t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
	}
	port = strconv.Itoa(c.port + 10)
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, port)) //nolint:noctx // it ends with the test
	if err != nil {
		c.t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { relay(listener, net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port+2)), &all) })
	c.t.Cleanup(func() { _ = listener.Close() })
	return ip, port
}

// relay passes on what is said on each connection, until the listener is closed.
func relay(listener net.Listener, target string, all *sync.WaitGroup) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", target) //nolint:noctx // a server of this machine
		if err != nil {
			_ = from.Close() // the Pod tries again
			continue
		}
		for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
			all.Go(func() {
				_, _ = io.Copy(way[0], way[1]) // its end is all that matters
				_, _ = way[0].Close(), way[1].Close()
			})
		}
	}
}
