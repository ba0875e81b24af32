import shutil

from tests.mechanisms import Program, Scene

SCENE = Scene(
    "go-gc",
    "A Go program that allocates with a tenth of its heap to spare: most of the time it collects garbage.",
    Program(
        """
package main

import "runtime/debug"

type node struct{ next, other *node }

var kept [1 << 20]*node
var last *node

func main() {
	debug.SetGCPercent(10)
	for i := range kept {
		kept[i] = &node{last, kept[i/2]}
		last = kept[i]
	}
	for i := SEED; ; i++ {
		last = &node{kept[i%len(kept)], nil}
	}
}
""",
        "go",
    ),
    Program(
        """
package main

var sum float64

func main() {
	for i := 1.0 + SEED; ; i++ {
		sum += 1 / i
	}
}
""",
        "go",
    ),
    resembles="a Go program that computes without allocating",
    obstacle=lambda: "" if shutil.which("go") else "the Go compiler is missing",
)
