package yamldoc

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as 8MiB, 16MB or a plain number. It is never negative.
type Size int64

// units in the order in which they are tried: MiB before B.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"tib", 1 << 40},
	{"kb", 1e3},
	{"mb", 1e6},
	{"gb", 1e9},
	{"tb", 1e12},
	{"b", 1},
}

// UnmarshalText parses a size from a file, a flag or a variable.
func (z *Size) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	digits, unit := strings.ToLower(s), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	if _, ok := plainNumber(digits); !ok {
		return fmt.Errorf("wants a size such as 8MiB, 16MB or a number of bytes, got %q", shorten(s))
	}
	size, ok := new(big.Rat).SetString(digits)
	if !ok {
		return fmt.Errorf("is too large: %s", shorten(s))
	}
	size.Mul(size, new(big.Rat).SetInt64(unit))
	switch {
	case size.Sign() < 0:
		return fmt.Errorf("must not be negative, got %s", shorten(s))
	case !size.IsInt():
		return fmt.Errorf("is not a whole number of bytes: %s", shorten(s))
	case !size.Num().IsInt64():
		return fmt.Errorf("is too large: %s", shorten(s))
	}
	*z = Size(size.Num().Int64())
	return nil
}

// UnmarshalJSON parses a size from a string or a number of bytes.
func (z *Size) UnmarshalJSON(raw []byte) error {
	s, err := text(raw)
	if err != nil {
		return fmt.Errorf("wants a size such as 8MiB, 16MB or a number of bytes, got %s", shorten(string(raw)))
	}
	return z.UnmarshalText([]byte(s))
}

// String returns the size in the largest unit without a fraction.
func (z Size) String() string {
	for _, u := range []struct {
		suffix string
		bytes  Size
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if z != 0 && z%u.bytes == 0 {
			return strconv.FormatInt(int64(z/u.bytes), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(z), 10)
}

// MarshalText returns String, also for JSON.
func (z Size) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

// JSONSchema describes the values that UnmarshalJSON accepts.
func (Size) JSONSchema() string {
	return `{"anyOf":[{"type":"integer","minimum":0},{"type":"string","pattern":"^\\s*\\+?[0-9.]+([eE][+-]?[0-9]+)?\\s*([kKmMgGtT][iI]?)?[bB]?\\s*$"}]}`
}
