package wiring

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/container"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/launch/kube"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/manifest"
)

// Examine reports which kinds of isolation work on this machine, and why the others do not. A kind
// that does not work is a failure only if a tool needs it. running says that an Orla runs as a
// service, which may have a cgroup that this process lacks. begins is called before each check that
// may take seconds.
func Examine(ctx context.Context, cfg *config.Loaded, tools []manifest.Tool, running bool, begins func(what string)) []doctor.Finding {
	log := slog.New(slog.DiscardHandler)
	local, err := launch.NewLocal(launch.Options{Log: log})
	if err != nil {
		return []doctor.Finding{{Check: "isolation", Level: doctor.Warn, Text: err.Error()}}
	}
	defer local.Close()
	needed := map[manifest.Backend][]string{}
	for _, t := range tools {
		if b := t.Isolation.Terms.Backend; b != "" && t.Isolation.Terms.Refused == "" {
			needed[b] = append(needed[b], t.Name)
		}
	}
	begins("making a native sandbox")
	sandboxes := examineSandbox(ctx, local, needed[manifest.BackendNative], log)
	if sandboxes.Level == doctor.Fail && running {
		sandboxes.Level = doctor.Warn
		sandboxes.Text += "; the Orla that runs may have it: call one, and see orla status NAME"
	}
	if cfg.ContainerEngine != config.NoEngine {
		begins(fmt.Sprintf("running a container, for at most %s", enginePatience))
	}
	findings := []doctor.Finding{
		sandboxes,
		examineEngine(ctx, cfg, local, tools, needed[manifest.BackendContainer]),
	}
	if cfg.K8sEnabled {
		begins("asking the cluster")
		findings = append(findings, examineCluster(ctx, cfg, needed[manifest.BackendKubernetes]))
	}
	findings = append(findings, refusedTools(tools)...)
	return append(findings, doctor.Finding{Check: "wasm", Level: doctor.OK, Text: "modules run in Orla itself, on every machine"})
}

// ExamineSandbox reports whether a native sandbox can be made on this machine, which some tools need.
func ExamineSandbox(ctx context.Context, needed []string) doctor.Finding {
	log := slog.New(slog.DiscardHandler)
	local, err := launch.NewLocal(launch.Options{Log: log})
	if err != nil {
		return doctor.Finding{Check: "sandbox", Level: doctor.Warn, Text: err.Error()}
	}
	defer local.Close()
	return examineSandbox(ctx, local, needed, log)
}

// examineSandbox makes an empty native sandbox.
func examineSandbox(ctx context.Context, local *launch.Local, needed []string, log *slog.Logger) doctor.Finding {
	const check = "sandbox"
	host := sandbox.NewHost(sandbox.HostOptions{Local: local, Log: log})
	defer host.Close()
	reasons := host.Probe(ctx)
	if len(reasons) == 0 {
		return doctor.Finding{Check: check, Level: doctor.OK, Text: "a native sandbox can be made here, with all that it has to hold"}
	}
	var why []string
	for _, r := range reasons {
		why = append(why, r.What+": "+r.Why)
	}
	return doctor.Lacking(check, "no native sandbox can be made here: "+strings.Join(why, "; "), reasons[0].Fix, needed)
}

// enginePatience bounds the trial of an engine.
const enginePatience = 25 * time.Second

// examineEngine runs a container with the options that tools get, and checks that they take effect.
// An engine that answers may still not be able to run anything.
func examineEngine(ctx context.Context, cfg *config.Loaded, local *launch.Local, tools []manifest.Tool, needed []string) doctor.Finding {
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	const check = "containers"
	if cfg.ContainerEngine == config.NoEngine {
		return doctor.Finding{Check: check, Level: doctor.OK, Text: "tool_container_engine is none"}
	}
	all := &engines{local: local, environ: environ.Clean(os.Environ()), folder: cfg.ToolsDir, log: slog.New(slog.DiscardHandler)}
	defer all.close()
	engine := all.named(cfg.ContainerEngine) //nolint:contextcheck // a sweep has none, and only who serves makes one
	opts := container.Options{
		Tool: "doctor", User: cfg.ContainerUser, Runtime: cfg.ContainerRuntime,
		Limits: cgroup.Limits{Memory: int64(cfg.ContainerMemory), CPUs: cfg.ContainerCPUs, Pids: cfg.ContainerPids},
	}
	images := []string{cfg.ContainerImage}
	for _, t := range tools {
		if t.Isolation.Terms.Backend == manifest.BackendContainer {
			images = append(images, t.Isolation.Image)
			opts.Sandboxed = opts.Sandboxed || t.Isolation.Mode == manifest.IsolationSandboxed
		}
	}
	name, err := engine.Try(ctx, opts, images)
	if err != nil {
		return refused(check, err, needed)
	}
	return doctor.Finding{Check: check, Level: doctor.OK, Text: name + " ran a container, and held it as it has to"}
}

// examineCluster asks the cluster whether Orla may make Jobs and Pods in it.
func examineCluster(ctx context.Context, cfg *config.Loaded, needed []string) doctor.Finding {
	const check = "kubernetes"
	cluster := kube.New(kube.Options{
		Kubeconfig: cfg.K8sKubeconfig, Context: cfg.K8sContext, Namespace: cfg.K8sNamespace, Log: slog.New(slog.DiscardHandler),
	})
	defer cluster.Close()
	if err := cluster.Check(ctx); err != nil {
		return refused(check, err, needed)
	}
	return doctor.Finding{
		Check: check, Level: doctor.OK,
		Text: "Orla may make Jobs and Pods in namespace " + cfg.K8sNamespace + "; whether the cluster's network obeys NetworkPolicies cannot be seen from here",
	}
}

// refused returns the finding for an error that says what is missing, and then what to do.
func refused(check string, err error, needed []string) doctor.Finding {
	text, fix := fault.From(err).Reason, ""
	if i := strings.LastIndex(text, "; "); i >= 0 {
		text, fix = text[:i], text[i+2:]
	}
	return doctor.Lacking(check, text, fix, needed)
}

// refusedTools are those whose calls the configuration itself refuses.
func refusedTools(tools []manifest.Tool) []doctor.Finding {
	type refusal struct{ why, fix string }
	refused := map[refusal][]string{}
	for _, t := range tools {
		if terms := t.Isolation.Terms; terms.Refused != "" {
			r := refusal{terms.Refused, terms.Remedy}
			refused[r] = append(refused[r], t.Name)
		}
	}
	var findings []doctor.Finding
	for r, names := range refused {
		findings = append(findings, doctor.Lacking("isolation", r.why, r.fix, names))
	}
	slices.SortFunc(findings, func(a, b doctor.Finding) int { return strings.Compare(a.Text, b.Text) })
	return findings
}
