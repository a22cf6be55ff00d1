package origin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

const (
	maxTags    = 8 << 20 // bytes of the list of tags
	maxRefs    = 64 << 10
	stepLimit  = time.Minute // for what needs no network
	fetchedRef = "refs/orla/fetched"
)

// Git fetches trees from repositories with the program git. The zero value works.
type Git struct {
	Timeout time.Duration // of a method; if 0, 5 minutes
	Limits  Limits
	// Progress receives the lines that git writes about its progress, without control characters. It is
	// called in another goroutine, and may be nil.
	Progress func(line string)
	// Local also allows file:// URLs. git reads the configuration of such a repository.
	Local bool
}

// patient is the time limit of git if there is none.
const patient = 5 * time.Minute

// start checks what is asked for, and returns a git with defaults.
func (g Git) start(ctx context.Context, url string) (*program, context.Context, context.CancelFunc, error) {
	g.Limits = g.Limits.orDefault()
	g.Timeout = cmp.Or(g.Timeout, patient)
	scheme, err := scheme(url, g.Local)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.Timeout, fmt.Errorf("git did not finish within %s", g.Timeout))
	return &program{git: g, scheme: scheme}, ctx, cancel, nil
}

// Tags asks a repository for its tags and returns those that are versions: "v" and a semantic version, in
// ascending order (RFC 3, section 7.3). others are some of the rest.
func (g Git) Tags(ctx context.Context, url string) (tags, others []string, err error) {
	p, ctx, cancel, err := g.start(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	defer cancel()
	out := &small{most: maxTags}
	if err := p.run(ctx, out, "ls-remote", "--tags", "--refs", "--", url); err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(out.String()) {
		_, name, _ := strings.Cut(strings.TrimRight(line, "\n"), "\trefs/tags/")
		switch {
		case isVersion(name):
			tags = append(tags, name)
		case len(others) < fewTags:
			others = append(others, name)
		}
	}
	slices.SortFunc(tags, semver.Compare)
	return tags, others, nil
}

// fewTags is how many tags that are not versions are worth a look.
const fewTags = 3

// isVersion reports whether a tag is "v" and a whole semantic version.
func isVersion(tag string) bool {
	return semver.IsValid(tag) && semver.Canonical(tag)+semver.Build(tag) == tag && checkRef(tag) == nil
}

// Latest returns the tag of the highest stable version, or else of the highest pre-release; "" without tags (RFC 3,
// section 7.3).
func Latest(tags []string) (latest string) {
	for _, tag := range tags {
		stable, before := semver.Prerelease(tag) == "", latest != "" && semver.Prerelease(latest) == ""
		if latest == "" || stable && !before || stable == before && semver.Compare(tag, latest) > 0 {
			latest = tag
		}
	}
	return latest
}

// Fetch writes the tree of a tag, of a full commit, or of "HEAD" into a folder, which must be empty or missing. If
// signers are given, as ParseSigner accepts them, the tag must be signed by one of them: the error is a
// *SignerError otherwise. A signature that is wrong is always an error.
//
// Nothing of the repository is checked out: its objects are read. While it fetches, the folder has
// a repository of Orla's own in .git.
func (g Git) Fetch(ctx context.Context, url, ref, into string, signers []string) (Tree, error) {
	p, ctx, cancel, err := g.start(ctx, url)
	if err != nil {
		return Tree{}, err
	}
	defer cancel()
	if err := checkRef(ref); err != nil {
		return Tree{}, err
	}
	allowed, err := parseSigners(signers)
	if err != nil {
		return Tree{}, err
	}
	if err := os.MkdirAll(into, 0o700); err != nil {
		return Tree{}, err
	}
	if into, err = filepath.Abs(into); err != nil {
		return Tree{}, err
	}
	dir := filepath.Join(into, ".git")
	defer func() { _ = os.RemoveAll(dir) }()
	tree, err := p.fetch(ctx, url, ref, dir, allowed)
	if err != nil {
		return Tree{}, err
	}
	if err := write(ctx, into, p.git.Limits, false, &objects{program: p, commit: tree.Commit}); err != nil {
		return Tree{}, err
	}
	return tree, os.RemoveAll(dir)
}

// fetch fetches into a new repository, and checks what came.
func (p *program) fetch(ctx context.Context, url, ref, dir string, signers []string) (tree Tree, err error) {
	isCommit, object, commit, from := commitForm().MatchString(ref), ref, ref, ref
	isTag := !isCommit && ref != "HEAD"
	if isTag {
		from = "refs/tags/" + ref
	} else if len(signers) > 0 {
		return tree, &SignerError{Allowed: signers, reason: "it was not asked for by a tag, and only tags can be signed"}
	}
	if !isCommit {
		if object, commit, err = p.advertised(ctx, url, from); err != nil {
			return tree, err
		}
	}
	format := "--object-format=sha1"
	if len(object) == 64 {
		format = "--object-format=sha256"
	}
	if err := p.run(ctx, nil, "init", "--quiet", "--bare", "--template=", format, "--", dir); err != nil {
		return tree, err
	}
	p.dir = dir
	fetching, end := watched(ctx, dir, p.git.Limits.Bytes+p.git.Limits.overhead())
	err = p.run(fetching, nil, "fetch", "--progress", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-auto-maintenance",
		"--no-write-fetch-head", "--", url, "+"+from+":"+fetchedRef)
	end()
	if err != nil {
		return tree, err
	}
	got, err := p.resolve(ctx, fetchedRef)
	if err != nil {
		return tree, err
	}
	if tree.Commit, err = p.resolve(ctx, fetchedRef+"^{commit}"); err != nil {
		return tree, err
	}
	if ref == "HEAD" { // a branch, which may have moved
		return tree, nil
	}
	if got != object || tree.Commit != commit {
		return tree, fmt.Errorf("the repository said that %s is %s, and sent %s", ref, commit, tree.Commit)
	}
	if !isTag {
		return tree, nil
	}
	tree.Tag = ref
	tree.Signer, err = p.signer(ctx, ref, got, tree.Commit, signers)
	return tree, err
}

// advertised returns the object of a tag or of HEAD, and the commit that it leads to, as the repository says.
func (p *program) advertised(ctx context.Context, url, name string) (object, commit string, err error) {
	out := &small{most: maxRefs}
	if err := p.run(ctx, out, "ls-remote", "--", url, name, name+"^{}"); err != nil {
		return "", "", err
	}
	for line := range strings.Lines(out.String()) {
		id, of, _ := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		switch {
		case !commitForm().MatchString(id):
		case of == name:
			object = id
		case of == name+"^{}":
			commit = id
		}
	}
	if object == "" {
		return "", "", fmt.Errorf("%w: %s", ErrNotThere, quoted(strings.TrimPrefix(name, "refs/tags/")))
	}
	return object, cmp.Or(commit, object), nil
}

// resolve returns the id of an object.
func (p *program) resolve(ctx context.Context, name string) (string, error) {
	out := &small{most: maxRefs}
	if err := p.run(ctx, out, "rev-parse", "--verify", "--quiet", "--end-of-options", name); err != nil {
		return "", errors.New("what was fetched is not a commit")
	}
	return strings.TrimSpace(out.String()), nil
}

// objects is the tree of a commit.
type objects struct {
	*program
	commit string
}

func (o *objects) list(ctx context.Context, limits Limits) ([]entry, error) {
	l := &lister{most: limits.Files}
	if err := o.run(ctx, l, "ls-tree", "-r", "-t", "-z", "-l", "--full-tree", o.commit); err != nil {
		return nil, err
	}
	err := o.read(ctx, l.list, link, func(i int, content io.Reader) error {
		target, err := io.ReadAll(io.LimitReader(content, maxTarget+1))
		l.list[i].target, l.list[i].size = string(target), 0
		return err
	})
	return l.list, err
}

func (o *objects) files(ctx context.Context, entries []entry, put func(int, io.Reader) error) error {
	return o.read(ctx, entries, file, put)
}

// read reads the objects of a kind by one git cat-file.
func (o *objects) read(ctx context.Context, entries []entry, of kind, put func(int, io.Reader) error) error {
	asked := &bytes.Buffer{}
	for _, e := range entries {
		if e.kind == of {
			fmt.Fprintln(asked, e.object)
		}
	}
	if asked.Len() == 0 {
		return nil
	}
	out, in := io.Pipe()
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := o.runWith(ctx, asked, in, "cat-file", "--batch")
		in.CloseWithError(cmp.Or(err, io.ErrUnexpectedEOF))
		ended <- err
	}()
	err := readBatch(bufio.NewReaderSize(out, 64<<10), entries, of, put)
	if err != nil {
		cancel(err)
	}
	out.CloseWithError(cmp.Or(err, io.ErrClosedPipe)) // git has nothing more to say
	if end := <-ended; err == nil && ctx.Err() != nil {
		err = end
	}
	cancel(nil)
	return err
}

func readBatch(from *bufio.Reader, entries []entry, of kind, put func(int, io.Reader) error) error {
	for i, e := range entries {
		if e.kind != of {
			continue
		}
		line, err := from.ReadSlice('\n')
		if err != nil {
			return err
		}
		var id, as string
		var n int64
		if _, err := fmt.Sscanf(string(line), "%s %s %d\n", &id, &as, &n); err != nil || id != e.object || as != "blob" || n != e.size {
			return refused(e.name, "git cannot read it")
		}
		content := &io.LimitedReader{R: from, N: n}
		if err := put(i, content); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return err
		}
		if _, err := from.Discard(1); err != nil {
			return err
		}
	}
	return nil
}

// NotTracked returns an error if a repository of the user's has a file already, which is at path below dir: no .gitignore keeps
// git from taking what changes in it. Without git, nothing takes it.
func (g Git) NotTracked(ctx context.Context, dir, path string) error {
	g.Limits = g.Limits.orDefault()
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	// The folder may belong to another user, such as when root installs: its configuration names no program that this runs.
	p := &program{git: g, work: dir, set: "safe.directory=*"}
	out := &small{most: maxRefs}
	// It is in no repository if git has nothing to say.
	if err := p.run(ctx, out, "ls-files", "--cached", "-z", "--", path); err != nil || out.Len() == 0 {
		return nil
	}
	return fmt.Errorf("git has %s already, and would take the secrets in it: run git rm --cached %[1]s in its folder first, or remove the file and commit that", filepath.Join(dir, path))
}
