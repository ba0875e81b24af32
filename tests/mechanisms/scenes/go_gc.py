from tests.mechanisms import Scene

SCENE = Scene(
    "go-gc",
    "A Go program that collects garbage most of the time.",
    obstacle=lambda: "not reproduced: it needs a Go compiler",
)
