package container_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/launch"
)

// BenchmarkOverhead measures, in turn, a process started by a Launcher and the
// same without Orla: podman run with the flags that Orla gives it, and --rm.
func BenchmarkOverhead(b *testing.B) {
	bench := usualBench(b)
	l := bench.launcher(sandboxed)
	bench.run(l, sh("true")) // all is known
	flags := []string{
		"run", "--rm", "--interactive", "--init", "--pull=never", "--network=none", "--user=65532:65532", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--ipc=private",
		"--tmpfs=/tmp:rw,noexec,nosuid,nodev,size=16m,mode=1777", "--log-driver=none", "--no-healthcheck", "--read-only", "--memory=134217728", "--memory-swap=134217728", "--cpus=0.5", "--pids-limit=64",
		"--http-proxy=false", "--env-host=false", "--systemd=false", "--pid=private", "--uts=private", "--read-only-tmpfs=false", "--workdir=/tmp", "--entrypoint=/bin/sh", "localhost/orla-test:1", "-c", "true",
	}
	var ours, theirs []time.Duration
	for b.Loop() {
		began := time.Now()
		p, err := l.Start(b.Context(), sh("true"))
		if err != nil {
			b.Fatal(err)
		}
		<-p.Exited()
		ours = append(ours, time.Since(began))
		<-p.Gone()
		closeStreams(p)

		began = time.Now()
		if err := bench.podman.Command(flags...).Run(); err != nil {
			b.Fatal(err)
		}
		theirs = append(theirs, time.Since(began))
	}
	b.ReportMetric(float64(median(ours).Microseconds())/1000, "ms/orla")
	b.ReportMetric(float64(median(theirs).Microseconds())/1000, "ms/hand")
	b.ReportMetric(float64(median(ours))/float64(median(theirs)), "ratio")
}

func closeStreams(p launch.Process) {
	in, out, err := p.Streams()
	for _, f := range []*os.File{in, out, err} {
		if f != nil {
			_ = f.Close() // nothing is lost
		}
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
