package kube

import (
	"crypto/rand"
	"strings"
)

// The labels of what is made.
const (
	labelManaged  = "app.kubernetes.io/managed-by"
	labelInstance = "orla.dev/instance"
	labelLife     = "orla.dev/life"
	labelTool     = "orla.dev/tool"
	labelJob      = "orla.dev/job"     // on pods: the Job's name
	labelNetwork  = "orla.dev/network" // on pods: noneValue, or nothing
	managedBy     = "orla"
	noneValue     = "none"

	// annotationCall is the id of the call that a Job answers.
	annotationCall = "orla.dev/call-id"
)

const (
	maxLabel = 63 // characters of a label's value, and of a Job's name
	// maxNamed are those of a tool's name in a Job's, to which the cluster adds its own.
	maxNamed = 32
)

// labelValue makes a value of a label from any text. Two texts may have the same.
func labelValue(text string) string {
	valid := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
			return c
		}
		return '-'
	}, text)
	valid = strings.TrimLeft(valid, "-_.")
	return strings.TrimRight(valid[:min(len(valid), maxLabel)], "-_.")
}

// nameFor makes the name of a Job that no other has.
func nameFor(tool string) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		case c >= 'A' && c <= 'Z':
			return c + ('a' - 'A')
		}
		return '-'
	}, tool)
	name = strings.Trim(name[:min(len(name), maxNamed)], "-")
	if name != "" {
		name += "-"
	}
	return "orla-" + name + word()
}

// word is a random word of small letters and digits.
func word() string {
	const long = 12 // 60 bits
	return strings.ToLower(rand.Text()[:long])
}
