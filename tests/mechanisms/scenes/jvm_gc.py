import shutil

from tests.mechanisms import Program, Scene

OPTIONS = ("-Xms192m", "-Xmx192m", "-XX:+UseParallelGC", "-XX:ParallelGCThreads=1")


def find_obstacle() -> str:
    return "" if shutil.which("java") and shutil.which("javac") else "java and javac are missing"


SCENE = Scene(
    "jvm-gc",
    "A Java program whose heap is nearly full: most of the time it collects garbage.",
    Program(
        """
import java.util.*;
public class NAME {
  public static void main(String[] arguments) {
    List<Object> kept = new ArrayList<>();
    for (int i = 0; i < 1_050_000; i++) kept.add(new Object[24]);
    for (int i = SEED;; i++) kept.set(Math.floorMod(i * 7919, kept.size()), new Object[24]);
  }
}
""",
        "java",
        OPTIONS,
    ),
    Program(
        """
public class NAME {
  static double sum;
  public static void main(String[] arguments) {
    for (double i = 1 + SEED;; i += 1) sum += 1 / i;
  }
}
""",
        "java",
        OPTIONS,
    ),
    resembles="a Java program that computes without allocating",
    obstacle=find_obstacle,
)
