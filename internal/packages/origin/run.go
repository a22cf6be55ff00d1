package origin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/file/diskroom"
	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	keptStderr = 8 << 10
	looks      = 50 * time.Millisecond // how often the size of a fetch is looked at
)

// inherited are the variables that reach git: where programs are, how ssh finds its keys, and the way out to the network.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_EXEC_PATH",
	"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
}

// settings are what git is told, in addition to the protocol. The configuration of the machine and of the user is not read.
var settings = []string{
	"protocol.allow=never", "protocol.version=2",
	"http.followRedirects=false", "http.lowSpeedLimit=1000", "http.lowSpeedTime=30",
	"credential.helper=", "core.askPass=",
	"core.hooksPath=/dev/null", "core.attributesFile=/dev/null", "core.fsmonitor=false", "core.bigFileThreshold=8m",
	"submodule.recurse=false", "fetch.recurseSubmodules=false",
	"fetch.fsckObjects=true", "fetch.unpackLimit=1", "fetch.writeCommitGraph=false", "fetch.bundleURI=", "transfer.bundleURI=false",
	"gc.auto=0", "maintenance.auto=false", "pack.threads=1",
	"gpg.program=/dev/null/none", "gpg.openpgp.program=/dev/null/none", "gpg.x509.program=/dev/null/none",
	"gpg.ssh.program=ssh-keygen", "gpg.format=ssh",
}

// ssh never asks, and forwards nothing. A host that the user does not know is an error.
const ssh = "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ForwardAgent=no -o ForwardX11=no -o ClearAllForwardings=yes -o PermitLocalCommand=no"

// progress is a line about progress. Those of the other end begin with "remote: ", which git writes.
var progress = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(remote: )?[A-Z][a-z]+ [a-z]+: +[0-9]+% \([0-9]+/[0-9]+\)(, [0-9.]+ [KMG]?i?B( \| [0-9.]+ [KMG]?i?B/s)?)?(, done)?`)
})

// program runs git for one repository.
type program struct {
	git    Git
	scheme string // the one protocol that is allowed, or ""
	dir    string // the repository of Orla's own; "" for none
	work   string // a folder that may be in a repository of the user's, which is looked at; "" for none
	set    string // one more of the settings; "" for none
}

// environ returns the environment of git.
func (p *program) environ() []string {
	env := []string{
		"LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_ATTR_NOSYSTEM=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0",
		"GIT_SSH_COMMAND=" + ssh, "GIT_SSH_VARIANT=ssh", "SSH_ASKPASS_REQUIRE=never",
		// One object may need as much memory as a package may have on the disk.
		fmt.Sprintf("GIT_ALLOC_LIMIT=%dk", (p.git.Limits.Bytes+64<<20)>>10),
	}
	if p.work == "" { // not the repository of the folder in which Orla was started
		env = append(env, "GIT_DIR="+cmp.Or(p.dir, "/dev/null/none"))
	}
	if p.dir != "" {
		env = append(env, "TMPDIR="+p.dir)
	}
	for _, name := range inherited {
		if value, has := os.LookupEnv(name); has {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (p *program) command(ctx context.Context, args ...string) *exec.Cmd {
	all := slices.Clone(settings)
	if p.scheme != "" {
		all = append(all, "protocol."+p.scheme+".allow=always")
	}
	if p.set != "" {
		all = append(all, p.set)
	}
	var given []string
	for _, s := range all {
		given = append(given, "-c", s)
	}
	cmd := exec.CommandContext(ctx, "git", append(given, args...)...)
	cmd.Env = p.environ()
	cmd.Dir = cmp.Or(p.dir, p.work, "/")
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// run runs git until it ends or ctx does. stdout may be nil.
func (p *program) run(ctx context.Context, stdout io.Writer, args ...string) error {
	return p.runWith(ctx, nil, stdout, args...)
}

// runWith is run with an input.
func (p *program) runWith(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	// The kernel ends git when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := p.command(ctx, args...)
	stderr := &messages{progress: p.git.Progress}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	err := failure(ctx, args[0], cmd.Run(), stderr)
	if full, ok := stdout.(interface{ fault() error }); ok && full.fault() != nil {
		return full.fault() // git was ended by it
	}
	return err
}

// failure returns the error of a git that has ended, in git's own last words.
func failure(ctx context.Context, what string, err error, stderr *messages) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("the program git is not installed")
	case !errors.As(err, &exit):
		return fmt.Errorf("git %s: %w", what, err)
	}
	said := stderr.last()
	if strings.Contains(said, "not our ref") || strings.Contains(said, "couldn't find remote ref") || strings.Contains(said, "does not allow request for unadvertised object") {
		return fmt.Errorf("%w: git %s: %s", ErrNotThere, what, said)
	}
	return fmt.Errorf("git %s failed: %s", what, cmp.Or(said, err.Error()))
}

// messages keeps the end of what git writes to stderr, and passes on the lines about its progress.
type messages struct {
	progress func(string)
	line     []byte
	kept     []string
	size     int
}

func (m *messages) Write(p []byte) (int, error) {
	for _, c := range p {
		switch {
		case c == '\n' || c == '\r':
			m.end()
		case len(m.line) < 512:
			m.line = append(m.line, c)
		}
	}
	return len(p), nil
}

// end ends a line.
func (m *messages) end() {
	text := brief.Plain(string(m.line))
	m.line = m.line[:0]
	switch {
	case text == "":
	case progress().MatchString(text):
		if m.progress != nil {
			m.progress(progress().FindString(text))
		}
	default:
		m.kept = append(m.kept, text)
		for m.size += len(text); m.size > keptStderr; m.kept = m.kept[1:] {
			m.size -= len(m.kept[0])
		}
	}
}

// last returns the last lines, errors only if there are some.
func (m *messages) last() string {
	m.end()
	faults := slices.DeleteFunc(slices.Clone(m.kept), func(line string) bool {
		return !strings.HasPrefix(line, "fatal:") && !strings.HasPrefix(line, "error:") && !strings.HasPrefix(line, "remote: ")
	})
	if len(faults) == 0 {
		faults = m.kept
	}
	return brief.Cut(strings.Join(faults[max(0, len(faults)-3):], "; "), 600)
}

// small is a buffer that holds no more than most bytes.
type small struct {
	bytes.Buffer
	most int
	err  error
}

func (b *small) fault() error { return b.err }

func (b *small) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		b.err = fmt.Errorf("%w: the answer of git has over %d bytes", ErrTooLarge, b.most)
		return 0, b.err
	}
	return b.Buffer.Write(p)
}

// watched ends the context that it returns when a folder has more bytes than most. The caller calls end.
func watched(ctx context.Context, dir string, most int64) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(looks); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				if diskroom.SizeOf(dir) > most {
					cancel(fmt.Errorf("%w: the repository has over %d bytes", ErrTooLarge, most))
				}
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}
