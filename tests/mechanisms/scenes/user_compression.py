from tests.mechanisms import Program, Scene
from tests.mechanisms.scenes import python_loop

SCENE = Scene(
    "user-compression",
    "Compresses memory.",
    Program(
        """
import bz2, lzma, random, zlib
compress = (zlib.compress, bz2.compress, lzma.compress)[SEED % 3]
chance = random.Random(SEED)
data = b" ".join(str(chance.randrange(10**chance.randrange(1, 9))).encode() for _ in range(200_000))
while True:
    compress(data)
""",
        "python",
    ),
    python_loop.LOOP,
    resembles="computes in a Python loop",
)
