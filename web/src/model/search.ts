/** Searches names by regular expression; a slow pattern cannot freeze the page. */

const MAX_NAME_LENGTH = 4096;
const PATIENCE_MS = 1500;

export class BadPattern extends Error {}

/** Compiles a pattern; it is case-sensitive if it has capitals. */
export function compile(pattern: string): RegExp {
  try {
    return new RegExp(pattern, /\p{Lu}/u.test(pattern.replace(/\\./g, "")) ? "" : "i");
  } catch (error) {
    const why = error instanceof Error ? error.message.replace(/^Invalid regular expression: /, "") : "";
    throw new BadPattern(`Invalid regular expression: ${why}`);
  }
}

/** One byte per name, or null after a timeout. Self-contained: its source is the program of a worker. */
function matchNames(source: string, flags: string, names: string[], longest: number, patienceMs: number): Uint8Array | null {
  const pattern = new RegExp(source, flags);
  const matched = new Uint8Array(names.length);
  const deadline = Date.now() + patienceMs;
  for (let i = 0; i < names.length; i++) {
    matched[i] = pattern.test((names[i] as string).slice(0, longest)) ? 1 : 0;
    if ((i & 63) === 0 && Date.now() > deadline) return null;
  }
  return matched;
}

const TOO_SLOW = "This pattern takes too long. Avoid nested repeats such as (a+)+.";

/** Matches patterns against a fixed list of names in a worker that can be stopped. */
export class NameSearch {
  private worker: Worker | null = null;
  private latest = 0;

  constructor(private readonly names: string[]) {}

  /** One byte per name; null if a later search replaced this one. Throws BadPattern. */
  async find(pattern: string): Promise<Uint8Array | null> {
    const turn = ++this.latest;
    const { source, flags } = compile(pattern);
    const worker = this.started();
    const matched = await (worker
      ? this.ask(worker, turn, source, flags)
      : matchNames(source, flags, this.names, MAX_NAME_LENGTH, PATIENCE_MS));
    if (turn !== this.latest) return null;
    if (matched === null) throw new BadPattern(TOO_SLOW);
    return matched;
  }

  /** Cancels running searches. */
  forget(): void {
    this.latest += 1;
  }

  private started(): Worker | null {
    if (this.worker || typeof Worker === "undefined") return this.worker;
    const program = `let names = [];
      const match = ${matchNames.toString()};
      onmessage = ({ data }) => {
        if (data.names) { names = data.names; return; }
        postMessage({ turn: data.turn, matched: match(data.source, data.flags, names, ${MAX_NAME_LENGTH}, ${PATIENCE_MS}) });
      };`;
    try {
      const address = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
      this.worker = new Worker(address);
      this.worker.postMessage({ names: this.names });
    } catch {
      this.worker = null; // some browsers do not allow workers on file:// pages
    }
    return this.worker;
  }

  private ask(worker: Worker, turn: number, source: string, flags: string): Promise<Uint8Array | null> {
    return new Promise((resolve) => {
      const finish = (matched: Uint8Array | null) => {
        clearTimeout(timer);
        worker.removeEventListener("message", onMessage);
        resolve(matched);
      };
      const onMessage = (event: MessageEvent<{ turn: number; matched: Uint8Array | null }>) => {
        if (event.data.turn === turn) finish(event.data.matched);
      };
      const timer = setTimeout(() => {
        worker.terminate();
        if (this.worker === worker) this.worker = null;
        finish(null);
      }, PATIENCE_MS * 2);
      worker.addEventListener("message", onMessage);
      worker.postMessage({ turn, source, flags });
    });
  }
}
