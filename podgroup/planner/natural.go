package planner

import (
	"cmp"
	"strings"
)

// compareNatural compares two names with runs of digits compared as numbers, so that rack-10 comes
// after rack-9. Names that differ only in leading zeros are told apart by their bytes, so that the
// order is total.
func compareNatural(a, b string) int {
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	for same > 0 && isDigit(a[same-1]) {
		same-- // a number is compared whole
	}
	x, y := a[same:], b[same:]
	for x != "" && y != "" {
		if isDigit(x[0]) && isDigit(y[0]) {
			nx, ny := digits(x), digits(y)
			tx, ty := strings.TrimLeft(x[:nx], "0"), strings.TrimLeft(y[:ny], "0")
			if c := cmp.Or(cmp.Compare(len(tx), len(ty)), cmp.Compare(tx, ty)); c != 0 {
				return c
			}
			x, y = x[nx:], y[ny:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func digits(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}
