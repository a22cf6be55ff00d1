package kube

import (
	"crypto/rand"
	"strings"
)

// The labels of all objects.
const (
	labelManaged  = "app.kubernetes.io/managed-by"
	labelInstance = "orla.dev/instance"
	labelLife     = "orla.dev/life"
	labelTool     = "orla.dev/tool"
	labelJob      = "orla.dev/job"     // on the pod of a Job: the Job's name
	labelCapsule  = "orla.dev/capsule" // on the Pod of a capsule: "true"
	labelNetwork  = "orla.dev/network" // on pods: noneValue, or not set
	managedBy     = "orla"
	noneValue     = "none"

	// annotationCall is the id of the Job's call.
	annotationCall = "orla.dev/call-id"
	// annotationStart distinguishes the processes of a capsule, and annotationGeneration the Orlas that start them.
	annotationStart      = "orla.dev/start"
	annotationGeneration = "orla.dev/generation"
)

const (
	maxLabel = 63 // characters of a label's value, and of a Job's name
	// maxNamed is how many characters of the tool's name are in a Job's name, to which the cluster adds
	// its own.
	maxNamed = 32
)

// labelValue makes a valid label value from any text. Different texts may have the same value.
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

// nameFor returns a Job name that no other Job has.
func nameFor(tool string) string { return nameOf(tool) + word() }

// nameOf returns the begin of the names of a tool's objects.
func nameOf(tool string) string {
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
	return "orla-" + name
}

// word returns a random word of lowercase letters and digits.
func word() string {
	const long = 12 // 60 bits
	return strings.ToLower(rand.Text()[:long])
}
