package httpfront

import (
	"container/list"
	"context"

	"github.com/orla-project/orla/internal/call/turns"
)

// party is whom a session counts for, when there are too many sessions.
type party struct {
	who     string // the authenticated caller, or else the address
	caller  string // as rules and limits know it: all addresses are one caller
	program string // the client program, by the name that it gives; within one address, the program with the most sessions loses one
}

// parties counts the sessions and streams of each caller and address, and keeps them in the order
// in which they are ended to make room. The next one is found in constant time (SPEC S1).
type parties struct {
	of        map[string]*member // by party.who
	most      turns.Heap[*member]
	anonymous order // the sessions of callers without a token that have no open request
}

// member is a caller or an address that has sessions or streams.
type member struct {
	counted
	who      string
	programs map[string]*program
	most     turns.Heap[*program]
	idle     order     // its sessions without an open request
	busy     order     // its other sessions
	streams  list.List // *stream, the oldest one first
}

// program is a program of a member, by its name.
type program struct {
	counted
	name string
	idle order
}

// stream is an open stream that counts as a session.
type stream struct {
	party   party
	end     context.CancelFunc
	member  *member       // whose it is
	program *program      // of member
	element *list.Element // in member.streams
}

// count returns how many sessions and streams a caller or address has.
func (p *parties) count(who string) int {
	if m := p.of[who]; m != nil {
		return m.n
	}
	return 0
}

// largest returns the caller or address with the most sessions and streams; nil if there
// are none.
func (p *parties) largest() *member {
	if p.most.Len() == 0 {
		return nil
	}
	return p.most.First()
}

// largest returns the program with the most.
func (m *member) largest() *program { return m.most.First() }

// add counts one session or stream more.
func (p *parties) add(of party) (*member, *program) {
	m := p.of[of.who]
	if m == nil {
		m = &member{who: of.who, programs: map[string]*program{}}
		if p.of == nil {
			p.of = map[string]*member{}
		}
		p.of[of.who] = m
		p.most.Push(m)
	}
	one := m.programs[of.program]
	if one == nil {
		one = &program{name: of.program}
		m.programs[of.program] = one
		m.most.Push(one)
	}
	m.n++
	one.n++
	p.most.Fix(m)
	m.most.Fix(one)
	return m, one
}

// remove counts one less.
func (p *parties) remove(m *member, of *program) {
	m.n--
	of.n--
	p.most.Fix(m)
	m.most.Fix(of)
	if of.n == 0 {
		m.most.Remove(of)
		delete(m.programs, of.name)
	}
	if m.n == 0 {
		p.most.Remove(m)
		delete(p.of, m.who)
	}
}

// addSession counts a session.
func (p *parties) addSession(u *usage) {
	u.member, u.program = p.add(u.party)
	u.party.who = u.member.who // the same text, kept once
	p.used(u)
}

// removeSession does not count a session any more.
func (p *parties) removeSession(u *usage) {
	u.inMember.leave()
	u.inProgram.leave()
	u.inAnonymous.leave()
	p.remove(u.member, u.program)
	u.member, u.program = nil, nil
}

// addStream counts a stream.
func (p *parties) addStream(one *stream) {
	one.member, one.program = p.add(one.party)
	one.element = one.member.streams.PushBack(one)
}

// removeStream does not count a stream any more.
func (p *parties) removeStream(one *stream) {
	one.member.streams.Remove(one.element)
	p.remove(one.member, one.program)
}

// used moves a session behind the others of its caller, when one of its requests has begun or
// ended.
func (p *parties) used(u *usage) {
	if u.member == nil {
		return // it has ended
	}
	u.inMember.leave()
	u.inProgram.leave()
	u.inAnonymous.leave()
	if u.open > 0 {
		u.member.busy.join(&u.inMember, u)
		return
	}
	u.member.idle.join(&u.inMember, u)
	u.program.idle.join(&u.inProgram, u)
	if u.user == "" {
		p.anonymous.join(&u.inAnonymous, u)
	}
}

// order lists sessions by their last use, the oldest first.
type order struct{ first, last *rank }

// rank is where a session stands in an order.
type rank struct {
	of            *usage
	in            *order // nil if it is in none
	before, after *rank
}

// oldest returns the session whose last use is longest ago; nil if there is none.
func (o *order) oldest() *usage {
	if o.first == nil {
		return nil
	}
	return o.first.of
}

// join puts a session at the end.
func (o *order) join(r *rank, of *usage) {
	r.of, r.in, r.before, r.after = of, o, o.last, nil
	if o.last == nil {
		o.first = r
	} else {
		o.last.after = r
	}
	o.last = r
}

// leave takes a session out, if it is in an order.
func (r *rank) leave() {
	o := r.in
	if o == nil {
		return
	}
	if r.before == nil {
		o.first = r.after
	} else {
		r.before.after = r.after
	}
	if r.after == nil {
		o.last = r.before
	} else {
		r.after.before = r.before
	}
	*r = rank{}
}

// counted is how many sessions and streams somebody has.
type counted struct {
	turns.Position
	n int
}

// Before reports whether a caller or address has more than another one.
func (m *member) Before(other *member) bool { return m.n > other.n }

// Before is the same for programs.
func (p *program) Before(other *program) bool { return p.n > other.n }
