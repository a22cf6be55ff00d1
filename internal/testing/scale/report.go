package main

import (
	"fmt"
	"strings"
	"time"
)

// report is what docs/SCALING.md shows.
func report(sizes []Size, seed uint64) string {
	var b strings.Builder
	outcomes := make([]*outcome, len(sizes))
	for i, s := range sizes {
		outcomes[i] = simulateCalls(s, s.length(), seed)
	}
	section(&b, "Calls and memory", sizes, func(i int) [][2]string { return calls(sizes[i], outcomes[i]) })
	full(&b, sizes, outcomes)
	control(&b)
	section(&b, "The loss of a zone", sizes, func(i int) [][2]string { return zone(sizes[i], outcomes[i], simulateLoss(sizes[i], outcomes[i], seed)) })
	b.WriteString("### The numbers behind it\n\n| what | value | source |\n|---|---|---|\n")
	for _, c := range table() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.what, c.value, c.source)
	}
	return b.String()
}

// section is a table with a column for each size. rows says what is in the column of one; all have the same names.
func section(b *strings.Builder, title string, sizes []Size, rows func(i int) [][2]string) {
	columns := make([][][2]string, len(sizes))
	fmt.Fprintf(b, "### %s\n\n|", title)
	for i, s := range sizes {
		columns[i] = rows(i)
		fmt.Fprintf(b, " | %s", plural(s.Replicas, "replica"))
	}
	b.WriteString(" |\n|---|" + strings.Repeat("---:|", len(sizes)) + "\n")
	for r := range columns[0] {
		fmt.Fprintf(b, "| %s", columns[0][r][0])
		for i := range columns {
			fmt.Fprintf(b, " | %s", columns[i][r][1])
		}
		b.WriteString(" |\n")
	}
	b.WriteString("\n")
}

func calls(s Size, o *outcome) [][2]string {
	per := o.perCall.Seconds()
	return [][2]string{
		{"sessions", number(s.Sessions)},
		{"capsules in Pods", number(s.Capsules)},
		{"calls a second", number(int(s.calls()))},
		{"passed to the replica of their session", percent(float64(o.Forwarded) / float64(o.Came))},
		{"passed to the replica of their capsule", percent(float64(o.Far) / float64(o.Came))},
		{"processor time of the replicas for each", micro(o.perCall)},
		{"time of a call without the network, p50", micro(o.quantile(0.5))},
		{"p99", micro(o.quantile(0.99))},
		{"processors of the replicas in use", percent(o.replica + s.background())},
		{"calls a second that would use 70 % of them", number(int((0.7 - s.background()) * float64(s.Replicas*s.Cores) / per))},
		{"memory of each replica", mebibytes(s.memory())},
		{"memory of all", mebibytes(s.memory() * float64(s.Replicas))},
	}
}

// full says what is used most.
func full(b *strings.Builder, sizes []Size, outcomes []*outcome) {
	b.WriteString("### What is full first\n\n| replicas, sessions | what | used | grows with |\n|---|---|---:|---|\n")
	for i, s := range sizes {
		for _, n := range s.needs(outcomes[i]) {
			fmt.Fprintf(b, "| %s, %s | %s | %s | %s |\n", number(s.Replicas), number(s.Sessions), n.of, percent(n.share), n.detail)
		}
	}
	b.WriteString("\n")
}

// control says what replicas cost the control plane when nobody calls.
func control(b *strings.Builder) {
	b.WriteString("### What replicas cost the control plane\n\n| replicas | Leases renewed a second | changes passed to watches a second | processors | to list 1 000 tools, once for each replica |\n|---:|---:|---:|---:|---:|\n")
	for _, n := range []int{1, 3, 10, 100, 300, 1000} {
		s := Size{Replicas: n, Tools: 1000}
		renewals, events, _ := s.apiServer()
		each := float64(n) / leaseRenew.Seconds()
		fmt.Fprintf(b, "| %s | %.1f | %s | %.3f | %s |\n", number(n), each, number(int(each*float64(n))), renewals+events, seconds(s.start()))
	}
	fmt.Fprintf(b, "\nA control plane with %d processors that does nothing else starts %s Jobs a second,\nor carries %s calls of capsules in Pods.\n\n",
		controlCores, number(perSecondOf(jobCPU)), number(perSecondOf(lineCPU)))
}

// perSecondOf is how many of something the control plane can do in a second.
func perSecondOf(work time.Duration) int { return int(controlCores * time.Second / work) }

func zone(s Size, o *outcome, l *loss) [][2]string {
	left := s
	left.Replicas = max(s.Replicas-l.Replicas, 1)
	return [][2]string{
		{"replicas that are gone", number(l.Replicas)},
		{"calls in flight there, which their clients have to repeat", number(o.inFlight(s, l.Replicas))},
		{"known to the others after", seconds(l.detected)},
		{"sessions that they had", number(l.Sessions)},
		{"of these, call within a minute", number(len(l.resumed))},
		{"of these, call before it is known, and wait", number(l.waited)},
		{"processors of what is left, in the minute after", percent(l.replica)},
		{"memory of each that is left", mebibytes(left.memory())},
		{"of its `max_sessions`, when all have called", percent(float64(s.Sessions) / float64(left.Replicas) / maxSessions)},
		{"capsules that move to another replica, and have a node", number(len(l.moved))},
		{"READY again: half of them, the last", halfAndLast(l.moved)},
		{"capsules whose Pod was in the zone", number(len(l.rebuilt))},
		{"these READY again: half of them, the last", halfAndLast(l.rebuilt)},
	}
}

func halfAndLast(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	return seconds(all[len(all)/2]) + ", " + seconds(all[len(all)-1])
}

// number writes a number as people read it: 1 000 000.
func number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return number(n) + " " + what + "s"
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
func micro(d time.Duration) string {
	return fmt.Sprintf("%d µs", d.Round(time.Microsecond).Microseconds())
}
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
func mebibytes(bytes float64) string { return number(int(bytes/mib+0.5)) + " MiB" }
