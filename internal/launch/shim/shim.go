// Package shim is the first stage of a native sandbox: the first process of its
// namespaces, which makes the sandbox around itself, starts the tool in it, and
// stays until the tool has ended (docs/decisions/0020).
//
// It is this very program, started again. The stage takes over in the package's
// init, before nearly all others are initialised, since those take longer than
// all that it does. For that the package imports nothing but syscall and unsafe.
//
// Its invariant: it decides nothing. Package sandbox computes the whole Plan;
// the stage carries it out step by step, and ends at the first that fails, with
// the tool not started.
package shim

// Word is the argument that makes this program the stage of a sandbox. The
// descriptor Channel must be a socket, on which it gets its Plan.
const Word = "__sandbox"

// Channel is the stage's descriptor. It reads a Plan from it, and writes what
// becomes of that: a Report, and after Ready the tool's wait status.
const Channel = 3

// Old is where the machine's own root is while the new one is made.
const Old = "/.old"

// Plan is all that a stage does.
type Plan struct {
	Base     string // a folder of the machine, on which the new root is mounted for a moment
	Hostname string
	Entries  []Entry // what the new root has, in this order
	// Drop: the stage is root, and becomes ID. Else its user namespace has no
	// other user than ID.
	Drop     bool
	ID       uint64 // the user and the group
	Landlock Landlock
	Filter   string   // the seccomp filter, as the kernel takes it
	Limits   []Rlimit // they are never raised

	Path string // the tool; "" starts none: the stage was only to see whether it can be
	Dir  string
	Argv []string
	Env  []string // the stage adds what bears its own mark
}

// Kind is what an Entry is.
type Kind byte

// The kinds of entries.
const (
	Folder Kind = 'd'
	Link   Kind = 'l' // Data is where it points
	File   Kind = 'f' // Data is what it holds
	Bind   Kind = 'b' // of the machine's Data, to be read only, with what is mounted below it
	Device Kind = 'n' // of the machine's device Data
	Memory Kind = 't' // a tmpfs with the options Data
	Proc   Kind = 'p' // a proc with the options Data
	Seal   Kind = 's' // of what is mounted there: from now on it is read-only
)

// Entry is one thing of the new root.
type Entry struct {
	Kind Kind
	Path string
	Data string
}

// Landlock is what Landlock leaves to the tool. Without Attr there is none.
type Landlock struct {
	Attr  string // struct landlock_ruleset_attr
	Rules []Rule
}

// Rule allows something beneath a path.
type Rule struct {
	Path   string
	Access uint64
}

// Rlimit is a limit of each process.
type Rlimit struct {
	Resource uint64
	Most     uint64
}

// Report is the first byte of what a stage writes.
type Report byte

// What a stage reports.
const (
	Ready  Report = 'R' // the tool runs; its wait status follows when it has ended
	Failed Report = 'S' // an errno and a step follow: the sandbox cannot be had
	Unrun  Report = 'E' // an errno and a path follow: the sandbox is there, and the tool cannot be run in it
)

// Encode returns the plan as a stage reads it: its length in four bytes, and itself.
func (p Plan) Encode() []byte {
	w := writer{make([]byte, 4, 4096)}
	w.text(p.Base)
	w.text(p.Hostname)
	w.number(uint64(len(p.Entries)))
	for _, e := range p.Entries {
		w.number(uint64(e.Kind))
		w.text(e.Path)
		w.text(e.Data)
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

// size returns the length that the first four bytes tell.
func size(head [4]byte) int {
	return int(head[0]) | int(head[1])<<8 | int(head[2])<<16 | int(head[3])<<24
}

// decode reads what Encode wrote, without the length. It reports false for
// anything else.
func decode(from []byte) (p Plan, ok bool) {
	r := reader{from: string(from), ok: true}
	p.Base = r.text()
	p.Hostname = r.text()
	for range r.count() {
		p.Entries = append(p.Entries, Entry{Kind(r.number()), r.text(), r.text()})
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

// writer appends numbers of eight bytes, and texts after their length.
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

// reader is the other side of a writer. Once something is missing, all that it
// reads is empty.
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

// count reads how many of something follow, each of which takes eight bytes or more.
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
