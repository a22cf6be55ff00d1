package program

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// failing are the checks of the suite that Orla does not pass, each with the
// reason: "REVISION SCENARIO CHECK".
var failing = map[string]string{
	"2025-11-25 server-sse-polling server-sse-priming-event": "the event is there to resume a broken stream from, and Orla keeps no streams to resume: a call whose stream breaks is made again",
	"2025-11-25 server-sse-polling server-sse-retry-field":   "it says when to come back for a stream, and Orla keeps none",
}

// extensions are the scenarios that are not part of any revision. Orla declares
// none of these extensions, and the suite asks nothing of a server that does not.
var extensions = regexp.MustCompile(`^(tasks|sep-2640-skills)-`)

// SPEC G2: Orla passes what the official conformance suite checks of servers, in each
// revision, with tools of its own and with a server behind it that the official
// SDK made.
func TestG2Conformance(t *testing.T) {
	t.Parallel()
	suite := conformanceSuite(t)
	listed := scenarios(t, suite)
	for name, folder := range map[string]string{"own": "tools", "behind": "server"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := serveOrla(t, filepath.Join(suite.dir, folder))
			o.waitListed("test_tool_with_logging")
			ran := checked(t, suite.all(t, o.url, 0, revisions...))
			for _, scenario := range listed {
				if !slices.Contains(ran, scenario) {
					t.Errorf("%s was not run", scenario)
				}
			}
		})
	}
}

// scenarios asks the suite for what it has for servers: "REVISION SCENARIO".
func scenarios(t *testing.T, suite *conformance) (listed []string) {
	t.Helper()
	out, err := suite.list()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`- (\S+) \[(.*)\]`).FindAllStringSubmatch(out, -1) {
		if extension := m[2] == "extension"; extension != extensions.MatchString(m[1]) {
			t.Errorf("%s is of %s", m[1], m[2])
		} else if extension {
			continue
		}
		for revision := range strings.SplitSeq(m[2], ",") {
			listed = append(listed, revision+" "+m[1])
		}
	}
	const some = 100
	if len(listed) < some {
		t.Fatalf("the suite lists %d scenarios: %s", len(listed), out)
	}
	return listed
}

// checked reads the results of the suite's scenarios, and returns which there are.
func checked(t *testing.T, results string) (ran []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(results, "*", "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`([^/]+)/server-([^/]+?)-\d{4}-\d\d-\d\dT[^/]*/checks\.json$`)
	failed := map[string]bool{}
	for _, file := range files {
		m := named.FindStringSubmatch(file)
		if m == nil {
			t.Fatalf("results are in %s", file)
		}
		scenario := m[1] + " " + m[2]
		ran = append(ran, scenario)
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct {
			ID, Status, ErrorMessage string
		}
		if err := json.Unmarshal(raw, &checks); err != nil || len(checks) == 0 {
			t.Errorf("%s checked nothing: %v", scenario, err)
		}
		for _, c := range checks {
			check := scenario + " " + c.ID
			switch {
			case c.Status != "FAILURE" && c.Status != "WARNING":
			case failing[check] != "":
				failed[check] = true
			default:
				t.Errorf("%s: %s: %s", check, c.Status, c.ErrorMessage)
			}
		}
	}
	for check := range failing {
		if !failed[check] {
			t.Errorf("%s passes; it is expected to fail", check)
		}
	}
	return ran
}
