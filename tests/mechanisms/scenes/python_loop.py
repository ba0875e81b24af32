from tests.mechanisms import Program, Scene

LOOP = Program(
    """
def step(state, number):
    return (state * 31 + number) % 1000003

def run():
    state = SEED
    while True:
        for number in range(1000):
            state = step(state, number)

run()
""",
    "python",
)
SCENE = Scene(
    "python-loop",
    "Computes in a Python loop.",
    LOOP,
    Program(
        """
import random
values = [random.Random(SEED).random() for _ in range(500_000)]
while True:
    sorted(values)
""",
        "python",
    ),
    resembles="sorts in one call; the interpreter's loop does not run",
)
