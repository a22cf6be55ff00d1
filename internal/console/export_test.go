package console

import (
	"context"
	"time"
)

// Access is who may get in.
type Access struct{ a *access }

// NewAccess returns an Access that knows nobody.
func NewAccess() Access { return Access{&access{}} }

// Issue returns the code of a link.
func (a Access) Issue() string {
	code, _ := a.a.issue(Guest{Name: "user:ada(1000)"}, time.Now())
	return code
}

// Enter returns the token of a session; "" if the code is not good.
func (a Access) Enter(code string) string {
	g, ok := a.a.redeem(code, time.Now())
	if !ok {
		return ""
	}
	token, _, _ := a.a.enter(g, "http://127.0.0.1", time.Now(), time.Time{})
	return token
}

// Open counts a stream of a session, for which the page is open, until the function that it returns is called.
func (a Access) Open(token string) (done func()) {
	s := a.a.find(token, time.Now())
	s.begin()
	return s.done
}

// EnterByToken reports whether a caller with a token gets another session.
func (a Access) EnterByToken(name string) bool {
	_, _, ok := a.a.enter(Guest{Name: name, Token: "t"}, "https://orla.example.com", time.Now(), time.Time{})
	return ok
}

// Knows reports whether a token is that of a session, and uses it.
func (a Access) Knows(token string) bool { return a.a.find(token, time.Now()) != nil }

// Clear ends all sessions.
func (a Access) Clear() { a.a.clear() }

// Busy has another network read the body of a login until the function that it returns is called.
func (c *Console) Busy(ctx context.Context) (done func()) {
	c.entering.bodies.Enter(ctx, "another")
	return func() { c.entering.bodies.Leave("another") }
}

// Files are the files of the page.
func Files() map[string]string {
	files := map[string]string{}
	for name, f := range readFiles() {
		files[name] = string(f.content)
	}
	return files
}
