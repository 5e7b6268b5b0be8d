package planner

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The users that are named are the first of all of them by what they use and by name, whatever the order in which
// they were found; the others are summed up.
func TestFillUsersNamesTheLargest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Cluster{columns: map[string]Resource{"gpu": 1}}
		var occupants []occupant
		var all []Use
		for _, i := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7}).Draw(t, "order") {
			amount := rapid.Int64Range(0, 3).Draw(t, "amount")
			tenant := Tenant{Name: fmt.Sprintf("team/job-%d", 8+i), Pod: i == 3}
			occupants = append(occupants, occupant{tenant, []occupancy{{0, []Amount{{1, amount}}}}})
			if amount > 0 {
				all = append(all, Use{tenant, amount})
			}
		}
		slices.SortFunc(all, func(a, b Use) int { return cmp.Or(cmp.Compare(b.Amount, a.Amount), compareTenants(a.Tenant, b.Tenant)) })
		want := Shortage{Name: "gpu", UsedBy: all}
		if len(all) > maxUsers+1 {
			want.UsedBy, want.OtherTenants = all[:maxUsers], len(all)-maxUsers
			for _, u := range all[maxUsers:] {
				want.Others.Amount += u.Amount
			}
		}
		got := []Shortage{{Name: "gpu"}}
		c.fillUsers(got, occupants)
		if diff := gocmp.Diff(want, got[0]); diff != "" {
			t.Fatal(diff)
		}
	})
}
