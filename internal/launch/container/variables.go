package container

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/call/fault"
)

// variables say how a container gets its environment. No value is on a command line, which every
// user of the machine can read.
//
// A variable that affects the engine, its libraries or what it runs must not be in its environment: a
// tool's LD_PRELOAD, or the XTABLES_LIBDIR of iptables, would be code in a process that is not isolated.
// Nobody knows the names of all of them. So variables go through a pipe, as an env file. Only what an env
// file cannot have is in the environment of the engine, if the name is not known to be read by the engine and the value
// is not the path of a file. The command line has the names of these.
type variables struct {
	flags   []string
	environ []string
	without []string // names that the engine's environment must not have
	file    string
}

// pipeBytes bounds the env file: so many bytes fit into a new pipe before anything reads it.
const pipeBytes = 16 << 10

var (
	nameForm = form(`^[A-Za-z_][A-Za-z0-9_.-]*$`)
	// plainForm matches values that every engine reads in the same way from an env file: some engines
	// support quotes and comments there.
	plainForm = form("^([^\\s\"'`#\\\\$\\x00-\\x1f\\x7f]([^\"'`#\\\\$\\x00-\\x1f\\x7f]*[^\\s\"'`#\\\\$\\x00-\\x1f\\x7f])?)?$")
	// engineReads matches variables that engines, their libraries and the programs that they start may use.
	// It may match more than necessary: such variables only take the other way.
	engineReads = form(`(?i)^(PATH|HOME|SHELL|SHELLOPTS|BASH.*|PS4|PERL.*|PYTHON.*|RUBY.*|NODE_.*|OPENSSL.*|GNUTLS_.*|P11_KIT.*|KRB5.*|XTABLES_.*|EBTABLES_.*|MODPROBE_.*|KMOD.*|FUSE.*|USER|LOGNAME|PWD|OLDPWD|TERM|LANG|LANGUAGE|TZ|TZDIR|HOSTNAME|DEBUG|MAINPID|MANAGERPID|IFS|ENV|EDITOR|PAGER|HOSTALIASES|LOCALDOMAIN|LOCPATH|NLSPATH|MEMORY_PRESSURE_.*|` +
		`_.*|LD_.*|DYLD_.*|LC_.*|GLIBC_.*|MALLOC_.*|GCONV_.*|NIS_.*|RES_.*|RESOLV_.*|NSS_.*|GO.*|CGO_.*|TMP.*|TEMP.*|XDG_.*|DBUS_.*|SSH_.*|GPG.*|GNUPG.*|SSL_.*|TLS_.*|.*_PROXY|` +
		`DOCKER.*|BUILDKIT.*|BUILDX.*|COMPOSE_.*|MOBY.*|CONTAINER.*|PODMAN.*|LIBPOD.*|BUILDAH.*|STORAGE_.*|REGISTRY_.*|REGISTRIES_.*|REMOTE_.*|SIGNATURE.*|IMAGE_.*|CNI.*|NETAVARK.*|AARDVARK.*|CRUN.*|RUNC.*|CRIU.*|CONMON.*|OCI_.*|SELINUX.*|` +
		`NOTIFY_.*|WATCHDOG_.*|LISTEN_.*|FDSTORE.*|INVOCATION_ID|JOURNAL_.*|CREDENTIALS_.*|SYSTEMD_.*|OTEL_.*|TRACEPARENT|TRACESTATE|BAGGAGE|EXPERIMENTAL_.*|CLICOLOR.*|NO_COLOR|COLUMNS|LINES)$`)
)

// variables returns those of the process.
func (p plan) variables() (variables, error) {
	v := variables{
		// The mark of Orla's processes, which Local sets: the cleanup after a killed Orla also finds the
		// processes in containers by it.
		flags: []string{"--env=ORLA_INSTANCE", "--env=PWD=" + p.workdir()},
	}
	values := map[string]string{"HOME": tmp, "LANG": "C.UTF-8"}
	for _, kv := range slices.Concat(p.spec.Env, p.spec.Secrets) {
		name, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "PWD" || name == "ORLA_INSTANCE":
			continue
		case !nameForm().MatchString(name):
			return variables{}, fault.New(fault.RuntimePolicyInvalid, "%s: a variable named %q cannot be given to a container; use letters, digits and _", p.opts.Tool, name)
		}
		values[name] = value
	}
	var file strings.Builder
	var theirs, others []string // those that engines read have room in the file first
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if engineReads().MatchString(name) {
			theirs = append(theirs, name)
		} else {
			others = append(others, name)
		}
	}
	for i, name := range slices.Concat(theirs, others) {
		value, reads := values[name], i < len(theirs)
		plain := utf8.ValidString(value) && plainForm().MatchString(value)
		line := name + "=" + value + "\n"
		switch {
		case reads && !plain:
			return variables{}, fault.New(fault.RuntimePolicyInvalid, "%s: the value of %s cannot be given to a container: container engines take a variable of that name for their own, and its value has quotes, lines or spaces at its end; rename the variable", p.opts.Tool, name)
		case reads && file.Len()+len(line) > pipeBytes:
			return variables{}, fault.New(fault.RuntimePolicyInvalid, "%s: the variables that container engines take for their own are larger than %d bytes together", p.opts.Tool, pipeBytes)
		case plain && file.Len()+len(line) <= pipeBytes:
			file.WriteString(line)
		case namesFile(value):
			return variables{}, fault.New(fault.RuntimePolicyInvalid, "%s: the value of %s cannot be given to a container: it is the path of a file of this machine, with quotes or other characters that container engines read in different ways, or beyond %d bytes of variables; rename the file", p.opts.Tool, name, pipeBytes)
		default:
			v.flags = append(v.flags, "--env="+name)
			v.environ = append(v.environ, name+"="+value)
		}
	}
	for _, name := range p.proxies() {
		_, lower := values[strings.ToLower(name)]
		_, upper := values[strings.ToUpper(name)]
		if lower || upper {
			// One of the two is in the file. Without a value here, docker leaves that alone, and the other one unset: for some programs
			// an empty https_proxy says that HTTPS_PROXY does not count.
			v.flags, v.without = append(v.flags, "--env="+name), append(v.without, name)
		} else {
			v.flags = append(v.flags, "--env="+name+"=")
		}
	}
	slices.Sort(v.flags)
	slices.Sort(v.environ)
	v.file = file.String()
	if v.file != "" {
		v.flags = append(v.flags, "--env-file=/dev/fd/3")
	}
	return v, nil
}

// proxies returns the variables that docker sets in each container to the proxies of its configuration, with their passwords, unless
// a flag names them: those in an env file it does not know. peculiar sees to that for podman.
func (p plan) proxies() []string {
	if p.made.podman {
		return nil
	}
	return []string{
		"ALL_PROXY", "FTP_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "all_proxy", "ftp_proxy", "https_proxy", "http_proxy", "no_proxy",
	}
}

// namesFile reports whether a value, or a part of it between colons, is the path of a file of this machine. Engines run in /.
func namesFile(value string) bool {
	return slices.ContainsFunc(append(strings.Split(value, ":"), value), func(part string) bool {
		path := filepath.Join("/", part)
		// The URL of a server, such as redis://:pa$$word@host and mysql://root:pa$$word@host, has a part // or //root.
		if !strings.Contains(part, "/") || path == "/" || part == "//root" && strings.Contains(value, "://root") {
			return false
		}
		_, err := os.Lstat(path)
		return err == nil
	})
}

// over returns the environment of the engine's command line: environ with the variables, and without some. It removes
// duplicates, since engines would pass on the first one.
func (v variables) over(environ []string) []string {
	given := make(map[string]bool, len(v.environ))
	for _, name := range v.without {
		given[name] = true
	}
	for _, kv := range v.environ {
		name, _, _ := strings.Cut(kv, "=")
		given[name] = true
	}
	return append(slices.DeleteFunc(environ, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return given[name]
	}), v.environ...)
}

// open returns a pipe with the env file, for the engine's descriptor 3; nil if there is none. The
// file is never on a disk.
func (v variables) open() (*os.File, error) {
	if v.file == "" {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.WriteString(v.file)
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = r.Close() // the pipe is discarded
		return nil, err
	}
	return r, nil
}
