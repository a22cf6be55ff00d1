package program

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/faultproxy"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// certify writes a certificate for this machine and its key, and returns their
// paths. Whoever trusts the certificate trusts itself alone.
func certify(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", signed), write("key.pem", "PRIVATE KEY", plain)
}

// grpcResource is a tool of type grpc. It takes an endpoint.
const grpcResource = `apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: weather}
spec:
  type: grpc
  endpoint: %s
  input_schema: {type: object}
  auth: {secretRef: weather-token}
  runtime: {timeout: 20s}
---
apiVersion: orloj.dev/v1
kind: Secret
metadata: {name: weather-token}
stringData: {value: hunter2-token}
`

// SPEC-TOOLS 3.3: TLS, trusted as SSL_CERT_FILE says; one connection for all
// calls, and through a reload of another tool.
func TestGRPCToolOverTLS(t *testing.T) {
	t.Parallel()
	cert, key := certify(t)
	proxy := faultproxy.New(t, needs.Start(t, "grpc", "TLS_CERT="+cert, "TLS_KEY="+key).Addr)
	tools := t.TempDir()
	resource := fmt.Sprintf(grpcResource, proxy.Addr()) // bare: TLS
	if err := os.WriteFile(filepath.Join(tools, "weather.yaml"), []byte(resource), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := []string{orlaBinary(t), "--tools-dir", tools, "--port", "0"}
	trusting := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+cert) }
	o := startPrepared(t, t.TempDir(), trusting, argv...)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)

	a, err := o.call("weather", `{"do":"see"}`)
	if err != nil || a.Result == nil || a.Result.IsError {
		t.Fatalf("got %+v, %v", a, err)
	}
	var seen struct{ Backwards string }
	if err := json.Unmarshal(a.Result.StructuredContent, &seen); err != nil {
		t.Fatal(err)
	}
	forwards := []rune(seen.Backwards) // what is as it was is without credentials
	slices.Reverse(forwards)
	if !strings.Contains(string(forwards), `"authorization":"Bearer hunter2-token"`) || strings.Contains(string(a.Result.StructuredContent), "hunter2") {
		t.Errorf("the service saw %s, and said %s", string(forwards), a.Result.StructuredContent)
	}
	hundred := func() {
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if a, err := o.call("weather", `{"say":"hello"}`); err != nil || a.Result == nil || a.Result.IsError {
					t.Errorf("got %+v, %v", a, err)
				}
			})
		}
		wg.Wait()
	}
	hundred()
	testkit.WriteTool(t, tools, "another", "#!/bin/sh\necho hello\n")
	testkit.Eventually(t, "the new tool answers", func() bool {
		a, err := o.call("another", `{}`)
		return err == nil && a.Result != nil && !a.Result.IsError
	})
	hundred()
	if n := proxy.Connections(); n != 1 {
		t.Errorf("201 calls and a reload took %d connections", n)
	}

	o = startCommand(t, t.TempDir(), argv...)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	a, err = o.call("weather", `{}`)
	if err != nil || a.Result == nil || !a.Result.IsError || !strings.Contains(fmt.Sprint(a.Result), "not trusted") {
		t.Errorf("whom nobody vouches for: %+v, %v", a, err)
	}
}
