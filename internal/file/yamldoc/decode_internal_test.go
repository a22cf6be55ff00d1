package yamldoc

import (
	"reflect"
	"testing"
)

// SPEC S1: ten thousand files may be decoded into the same type.
func TestS1ATypeIsLookedUpOnce(t *testing.T) {
	type inner struct {
		B int `json:"b"`
	}
	type outer struct {
		A string `json:"a,omitempty"`
		inner
	}
	typ := reflect.TypeFor[outer]()
	if list := fieldsOf(typ); len(list) != 2 || list[0].name != "a" || list[1].name != "b" || list[0].required {
		t.Errorf("the fields are %+v", list)
	}
	if got := testing.AllocsPerRun(100, func() { fieldsOf(typ) }); got > 0 {
		t.Errorf("%.0f allocations for a type that was looked up before", got)
	}
}
