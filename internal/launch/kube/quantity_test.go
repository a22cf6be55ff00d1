package kube

import "testing"

// The limits of a pod are quantities as the cluster writes them.
func TestQuantities(t *testing.T) {
	for text, want := range map[string]struct{ whole, thousandths int64 }{
		"134217728": {134217728, 134217728000}, "128Mi": {134217728, 134217728000}, "1.5Ki": {1536, 1536000}, "500m": {1, 500},
		"0.07": {1, 70}, "2": {2, 2000}, "1k": {1000, 1000000}, "1e3": {1000, 1000000}, "1E3": {1000, 1000000}, "100n": {1, 1}, "+5": {5, 5000}, "-1": {-1, -1000}, ".5": {1, 500},
	} {
		whole, ok := quantity(text, 1)
		thousandths, alsoOK := quantity(text, 1000)
		if !ok || !alsoOK || whole != want.whole || thousandths != want.thousandths {
			t.Errorf("%q: %d, %d, %v; want %+v", text, whole, thousandths, ok, want)
		}
	}
	for _, text := range []string{"", "m", "Mi", "1K", "1/2", "0x10", "1_0", "Inf", "NaN", " 1", "--1", "1e", "1e999", "12E", "1234567890123456789012345678901234567890"} {
		if n, ok := quantity(text, 1); ok {
			t.Errorf("%q is %d; want none", text, n)
		}
	}
}

// A policy chooses pods as the cluster says; what Orla does not know is not taken for a no.
func TestSelectors(t *testing.T) {
	pod := map[string]string{"a": "1", "b": "2"}
	expression := func(key, operator string, values ...string) selector {
		s := selector{}
		s.Expressions = append(s.Expressions, struct {
			Key      string   `json:"key"`
			Operator string   `json:"operator"`
			Values   []string `json:"values"`
		}{key, operator, values})
		return s
	}
	for name, test := range map[string]struct {
		selector      selector
		chosen, known bool
	}{
		"all":             {selector{}, true, true},
		"a label":         {selector{Labels: map[string]string{"a": "1"}}, true, true},
		"another value":   {selector{Labels: map[string]string{"a": "1", "b": "1"}}, false, true},
		"no such label":   {selector{Labels: map[string]string{"c": ""}}, false, true},
		"in":              {expression("a", "In", "0", "1"), true, true},
		"not among them":  {expression("a", "In", "0"), false, true},
		"in, without":     {expression("c", "In", ""), false, true},
		"not in":          {expression("a", "NotIn", "0"), true, true},
		"not in, but is":  {expression("a", "NotIn", "1"), false, true},
		"not in, without": {expression("c", "NotIn", "1"), true, true},
		"exists":          {expression("a", "Exists"), true, true},
		"exists, not":     {expression("c", "Exists"), false, true},
		"does not exist":  {expression("c", "DoesNotExist"), true, true},
		"does not, is":    {expression("a", "DoesNotExist"), false, true},
		"unknown":         {expression("a", "Gt", "0"), false, false},
	} {
		if chosen, known := test.selector.matches(pod); chosen != test.chosen || known != test.known {
			t.Errorf("%s: %v, %v", name, chosen, known)
		}
	}
}
