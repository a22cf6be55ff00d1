// Package shim is the first stage of a native sandbox: the first process of its namespaces. It sets
// up the sandbox around itself, starts the tool in it, and stays until the tool has ended
// (docs/decisions/0020).
//
// The stage is this same program, started again. It takes over in the package's init, before nearly
// all other packages are initialised, since that takes longer than the stage's own work. To run that
// early, the package imports only syscall and unsafe.
//
// Its invariant: it decides nothing. Package sandbox computes the whole Plan; the stage carries it
// out step by step. If a step fails, it stops and does not start the tool.
package shim

// Word is the argument that makes this program the stage of a sandbox. The descriptor Channel must
// be a socket, from which the stage reads its Plan.
const Word = "__sandbox"

// Channel is the stage's descriptor. The stage reads a Plan from it, and writes a Report to it.
// After Ready it also writes the tool's wait status.
const Channel = 3

// Old is where the machine's root is mounted while the new one is made.
const Old = "/.old"

// Plan is everything that a stage does.
type Plan struct {
	Base     string // a folder of the machine on which the new root is mounted at first
	Hostname string
	Entries  []Entry // the entries of the new root, in this order
	// Drop says that the stage runs as root and changes to ID. If false, ID is the only user of its user
	// namespace.
	Drop     bool
	ID       uint64 // the user id and the group id
	Landlock Landlock
	Filter   string   // the seccomp filter, in the kernel's format
	Limits   []Rlimit // rlimits; none is raised

	Path string // the tool; "" starts none: the stage was only to see whether it can be
	Dir  string
	Argv []string
	Env  []string // without Orla's mark, which the stage adds
}

// Kind is the kind of an Entry.
type Kind byte

// The kinds of entries.
const (
	Folder Kind = 'd'
	Link   Kind = 'l' // a symbolic link to Data
	File   Kind = 'f' // a file with the content Data
	Bind   Kind = 'b' // a recursive read-only bind mount of the machine's Data
	Share  Kind = 'w' // the same, that the tool can change, without programs
	Device Kind = 'n' // the machine's device Data
	Memory Kind = 't' // a tmpfs with the options Data
	Proc   Kind = 'p' // a proc with the options Data
	Seal   Kind = 's' // makes the mount at Path read-only
)

// Entry is one entry of the new root.
type Entry struct {
	Kind Kind
	Path string
	Data string
	// Is says which file Data of a Bind or a Share has to be, and Path of the others. The zero value allows any.
	Is Identity
}

// Identity is a file: the device and the inode.
type Identity struct{ Device, Inode uint64 }

// Landlock has the Landlock rules for the tool. Without Attr, Landlock is not used.
type Landlock struct {
	Attr  string // struct landlock_ruleset_attr
	Rules []Rule
}

// Rule allows access below a path.
type Rule struct {
	Path   string
	Access uint64
}

// Rlimit is a resource limit of each process.
type Rlimit struct {
	Resource uint64
	Most     uint64
}

// Report is the first byte that a stage writes.
type Report byte

// The reports of a stage.
const (
	Ready  Report = 'R' // the tool runs; its wait status follows when it has ended
	Failed Report = 'S' // the sandbox failed; an errno and a step follow
	Unrun  Report = 'E' // the sandbox is set up, but the tool could not be executed; an errno and a path follow
)

// Encode returns the plan as a stage reads it: four bytes with its length, and the plan.
func (p Plan) Encode() []byte {
	w := writer{make([]byte, 4, 4096)}
	w.text(p.Base)
	w.text(p.Hostname)
	w.number(uint64(len(p.Entries)))
	for _, e := range p.Entries {
		w.number(uint64(e.Kind))
		w.text(e.Path)
		w.text(e.Data)
		w.number(e.Is.Device)
		w.number(e.Is.Inode)
	}
	w.number(p.ID)
	w.flag(p.Drop)
	w.text(p.Landlock.Attr)
	w.number(uint64(len(p.Landlock.Rules)))
	for _, r := range p.Landlock.Rules {
		w.text(r.Path)
		w.number(r.Access)
	}
	w.text(p.Filter)
	w.number(uint64(len(p.Limits)))
	for _, l := range p.Limits {
		w.number(l.Resource)
		w.number(l.Most)
	}
	w.text(p.Path)
	w.text(p.Dir)
	w.texts(p.Argv)
	w.texts(p.Env)
	n := len(w.to) - 4
	w.to[0], w.to[1], w.to[2], w.to[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
	return w.to
}

// size returns the length in the first four bytes.
func size(head [4]byte) int {
	return int(head[0]) | int(head[1])<<8 | int(head[2])<<16 | int(head[3])<<24
}

// decode reads what Encode wrote after the length. It reports false if the plan is malformed.
func decode(from []byte) (p Plan, ok bool) {
	r := reader{from: string(from), ok: true}
	p.Base = r.text()
	p.Hostname = r.text()
	for range r.count() {
		p.Entries = append(p.Entries, Entry{Kind(r.number()), r.text(), r.text(), Identity{r.number(), r.number()}})
	}
	p.ID = r.number()
	p.Drop = r.number() == 1
	p.Landlock.Attr = r.text()
	for range r.count() {
		p.Landlock.Rules = append(p.Landlock.Rules, Rule{r.text(), r.number()})
	}
	p.Filter = r.text()
	for range r.count() {
		p.Limits = append(p.Limits, Rlimit{r.number(), r.number()})
	}
	p.Path = r.text()
	p.Dir = r.text()
	p.Argv = r.texts()
	p.Env = r.texts()
	return p, r.ok && r.from == ""
}

// writer appends numbers of eight bytes, and strings with their length.
type writer struct{ to []byte }

func (w *writer) number(n uint64) {
	for range 8 {
		w.to = append(w.to, byte(n))
		n >>= 8
	}
}

func (w *writer) flag(f bool) {
	if f {
		w.number(1)
	} else {
		w.number(0)
	}
}

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.to = append(w.to, s...)
}

func (w *writer) texts(all []string) {
	w.number(uint64(len(all)))
	for _, s := range all {
		w.text(s)
	}
}

// reader reads what a writer wrote. Once bytes are missing, everything that it reads is zero.
type reader struct {
	from string
	ok   bool
}

func (r *reader) number() (n uint64) {
	if len(r.from) < 8 {
		r.from, r.ok = "", false
		return 0
	}
	for i := range 8 {
		n |= uint64(r.from[i]) << (8 * i)
	}
	r.from = r.from[8:]
	return n
}

// count reads the number of following elements, each of which takes at least eight bytes.
func (r *reader) count() uint64 {
	n := r.number()
	if n > uint64(len(r.from))/8 {
		r.from, r.ok = "", false
		return 0
	}
	return n
}

func (r *reader) text() string {
	n := r.number()
	if n > uint64(len(r.from)) {
		r.from, r.ok = "", false
		return ""
	}
	s := r.from[:n]
	r.from = r.from[n:]
	return s
}

func (r *reader) texts() (all []string) {
	for range r.count() {
		all = append(all, r.text())
	}
	return all
}
