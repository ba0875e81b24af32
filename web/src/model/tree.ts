/** Folds gathered samples into a flame tree, of one window or of a window and its baseline. */
import type { Night } from "../data/night";
import type { Gathered } from "./gather";

/**
 * A flame tree in columns; node 0 is the root, and a parent comes before its children.
 *
 * A label below the number of frames is a frame, above it a process: label - frames is the
 * process's string id. `total` and `self` are samples of the window, `baseTotal` and `baseSelf`
 * of the baseline (zero where there is none). `width` is what a node is drawn with. Unknown
 * functions in a row are one node, and `run` is how many, at most; 1 elsewhere.
 */
export interface Tree {
  nodes: number;
  parent: Int32Array;
  label: Int32Array;
  depth: Uint16Array;
  run: Uint16Array;
  total: Float64Array;
  self: Float64Array;
  baseTotal: Float64Array;
  baseSelf: Float64Array;
  width: Float64Array;
  childStart: Uint32Array;
  child: Uint32Array;
  frames: number;
  callers: boolean;
  compared: boolean;
  /** Samples of the window with an unknown function on their stack. */
  unknown: number;
}

class Builder {
  private mask: number;
  private slots: Int32Array;
  size = 1;
  unknown = 0;
  parent: Int32Array;
  label: Int32Array;
  depth: Uint16Array;
  run: Uint16Array;
  self: Float64Array;
  baseSelf: Float64Array;

  /** Allocates for about `expected` nodes: growing later costs more than unused memory. */
  constructor(expected: number) {
    const room = 2 ** Math.min(20, Math.max(10, Math.ceil(Math.log2(expected + 1))));
    this.mask = room * 2 - 1;
    this.slots = new Int32Array(room * 2).fill(-1);
    this.parent = new Int32Array(room);
    this.label = new Int32Array(room);
    this.depth = new Uint16Array(room);
    this.run = new Uint16Array(room).fill(1);
    this.self = new Float64Array(room);
    this.baseSelf = new Float64Array(room);
    this.parent[0] = -1;
    this.label[0] = -1;
  }

  childOf(parent: number, label: number): number {
    let slot = this.hash(parent, label);
    for (;;) {
      const node = this.slots[slot] as number;
      if (node < 0) break;
      if (this.parent[node] === parent && this.label[node] === label) return node;
      slot = (slot + 1) & this.mask;
    }
    const node = this.size++;
    this.slots[slot] = node;
    this.parent[node] = parent;
    this.label[node] = label;
    this.depth[node] = (this.depth[parent] as number) + 1;
    if (this.size === this.parent.length) this.grow();
    return node;
  }

  private hash(parent: number, label: number): number {
    const mixed = Math.imul(label ^ Math.imul(parent, 0x9e3779b1), 0x85ebca6b);
    return (mixed ^ (mixed >>> 15)) & this.mask;
  }

  private grow(): void {
    const larger = this.parent.length * 2;
    const copied = <T extends Int32Array | Uint16Array | Float64Array>(to: T, from: T): T => {
      to.set(from);
      return to;
    };
    this.parent = copied(new Int32Array(larger), this.parent);
    this.label = copied(new Int32Array(larger), this.label);
    this.depth = copied(new Uint16Array(larger), this.depth);
    this.run = copied(new Uint16Array(larger).fill(1), this.run);
    this.self = copied(new Float64Array(larger), this.self);
    this.baseSelf = copied(new Float64Array(larger), this.baseSelf);
    this.slots = new Int32Array(larger * 2).fill(-1);
    this.mask = larger * 2 - 1;
    for (let node = 1; node < this.size; node++) {
      let slot = this.hash(this.parent[node] as number, this.label[node] as number);
      while ((this.slots[slot] as number) >= 0) slot = (slot + 1) & this.mask;
      this.slots[slot] = node;
    }
  }
}

/** By frame: 0 if it has a name, else its kind plus one. Only runs of one kind are folded. */
function unknownKinds(night: Night): Uint8Array {
  const { strings } = night.header;
  return Uint8Array.from(night.frameName, (name, frame) => (/^\[unknown\]($| in )/.test(strings[name] as string) ? 1 + (night.frameKind[frame] as number) : 0));
}

function addAll(builder: Builder, night: Night, gathered: Gathered, callers: boolean, baseline: boolean): void {
  const { stackOffset, stackFrame } = night;
  const frames = night.frameName.length;
  const unknown = unknownKinds(night);
  for (let pair = 0; pair < gathered.count.length; pair++) {
    const stack = gathered.stack[pair] as number;
    const begin = stackOffset[stack] as number;
    const end = stackOffset[stack + 1] as number;
    const process = frames + (gathered.process[pair] as number);
    let node = callers ? 0 : builder.childOf(0, process);
    let before = 0;
    let run = 0;
    let known = true;
    for (let i = 0; i < end - begin; i++) {
      const frame = stackFrame[callers ? end - 1 - i : begin + i] as number;
      const kind = unknown[frame] as number;
      run = kind > 0 && kind === before ? run + 1 : 1;
      if (run === 1) node = builder.childOf(node, frame);
      else if (run > (builder.run[node] as number)) builder.run[node] = run;
      before = kind;
      known &&= kind === 0;
    }
    if (!known && !baseline) builder.unknown += gathered.count[pair] as number;
    if (callers) node = builder.childOf(node, process);
    const self = baseline ? builder.baseSelf : builder.self;
    (self[node] as number) += gathered.count[pair] as number;
  }
}

/**
 * Each node's samples with its children's. Compared windows differ in length and cores, so a
 * node's own width is the larger of its two rates: frames that vanished keep their place.
 */
function totals(builder: Builder, windowCoreSeconds: number, baseCoreSeconds: number | null): Pick<Tree, "total" | "baseTotal" | "width"> {
  const total = builder.self.slice(0, builder.size);
  const baseTotal = builder.baseSelf.slice(0, builder.size);
  const width = new Float64Array(builder.size);
  for (let node = builder.size - 1; node >= 0; node--) {
    const own = builder.self[node] as number;
    (width[node] as number) +=
      baseCoreSeconds === null ? own : Math.max(own / windowCoreSeconds, (builder.baseSelf[node] as number) / baseCoreSeconds);
    if (node === 0) break;
    const parent = builder.parent[node] as number;
    (total[parent] as number) += total[node] as number;
    (baseTotal[parent] as number) += baseTotal[node] as number;
    (width[parent] as number) += width[node] as number;
  }
  return { total, baseTotal, width };
}

function children(parent: Int32Array, nodes: number): Pick<Tree, "childStart" | "child"> {
  const childStart = new Uint32Array(nodes + 1);
  for (let node = 1; node < nodes; node++) (childStart[(parent[node] as number) + 1] as number) += 1;
  for (let node = 0; node < nodes; node++) (childStart[node + 1] as number) += childStart[node] as number;
  const next = childStart.slice();
  const child = new Uint32Array(Math.max(0, nodes - 1));
  for (let node = 1; node < nodes; node++) {
    const of = parent[node] as number;
    child[next[of] as number] = node;
    (next[of] as number) += 1;
  }
  return { childStart, child };
}

/** The tree of a window; `callers` reverses the stacks, so that equal leaves merge. */
export function foldTree(night: Night, window: Gathered, baseline: Gathered | null, callers: boolean): Tree {
  const builder = new Builder(8 * (window.count.length + (baseline?.count.length ?? 0)));
  addAll(builder, night, window, callers, false);
  if (baseline) addAll(builder, night, baseline, callers, true);
  const { size } = builder;
  const least = 1e-9;
  const parent = builder.parent.slice(0, size);
  return {
    nodes: size,
    parent,
    label: builder.label.slice(0, size),
    depth: builder.depth.slice(0, size),
    run: builder.run.slice(0, size),
    self: builder.self.slice(0, size),
    baseSelf: builder.baseSelf.slice(0, size),
    ...totals(
      builder,
      Math.max(least, window.capacity.coreSeconds),
      baseline ? Math.max(least, baseline.capacity.coreSeconds) : null,
    ),
    ...children(parent, size),
    frames: night.frameName.length,
    callers,
    compared: baseline !== null,
    unknown: builder.unknown,
  };
}
