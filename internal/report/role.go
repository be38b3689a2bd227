package report

import (
	"fmt"
	"regexp"
	"strings"
)

// A Role gives the lines and bars of one thing the same colour everywhere on a page.
type Role int

// The roles. Bare stays in the background.
const (
	Bare Role = iota
	First
	Second
	Third
	Fourth
	Fifth
	Sixth
	Seventh
	Eighth
	Ninth
	roles
)

// RoleAt returns the i-th role behind Bare, from 0; when they are used up it begins again.
func RoleAt(i int) Role { return First + Role(i%int(roles-First)) }

// Light returns the colour of r on a light page, as CSS, or "" if there is no such role.
func (r Role) Light() string { return r.color(0) }

// Dark returns the colour of r on a dark page, as CSS, or "" if there is no such role.
func (r Role) Dark() string { return r.color(1) }

// color returns the i-th colour of r in the style sheet, which lists the colours of a light page first.
func (r Role) color(i int) string {
	css, err := File("page.css")
	if err != nil {
		return ""
	}
	found := regexp.MustCompile(fmt.Sprintf(`--role%d: (#[0-9a-f]{6});`, r)).FindAllSubmatch(css, -1)
	if i >= len(found) {
		return ""
	}
	return string(found[i][1])
}

// home lists the guards that reports compare: each has the same colour in all of them.
var home = map[string]Role{
	"none": Bare, "bare": Bare, "spillway": First, "fixed": Second, "gradient2": Third, "vegas": Fourth, "aimd": Fifth,
	"failsafe": Sixth, "go-zero": Seventh, "aegis": Eighth, "rate": Ninth,
}

// Roles gives each of the guards of a page a role: well-known ones their own, and the others those that are left, in order. A
// name with an option after a colon, as in "fixed:8", is a separate guard. The first of them has the role of the name before
// the colon.
func Roles(names []string) map[string]Role {
	out := map[string]Role{}
	taken := map[Role]bool{}
	for _, name := range names {
		kind, _, _ := strings.Cut(name, ":")
		if role, known := home[kind]; known && !taken[role] {
			out[name] = role
			taken[role] = role != Bare
		}
	}
	next := 0
	for _, name := range names {
		if _, has := out[name]; has {
			continue
		}
		for range int(roles) {
			if !taken[RoleAt(next)] {
				break
			}
			next++
		}
		out[name] = RoleAt(next)
		taken[RoleAt(next)] = true
		next++
	}
	return out
}
