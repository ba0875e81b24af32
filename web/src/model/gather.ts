/** Sums the rows of a window by process and stack; everything else derives from these sums. */
import { NO_CORE, type Night } from "../data/night";
import type { Masks } from "./filter";
import { capacity, rowRange, snapped, type Capacity, type Window } from "./window";

/** A window's samples: `count[i]` samples of `process[i]` (a string id) in `stack[i]`. */
export interface Gathered {
  window: Window;
  process: Uint32Array;
  stack: Uint32Array;
  count: Float64Array;
  samples: number;
  /** Idle samples that pass the masks, not included in `samples`. */
  idleHidden: number;
  /** Samples excluded because their core is unknown. */
  coreless: number;
  rows: number;
  /** Samples by task. */
  byTask: Float64Array;
  capacity: Capacity;
}

/** Counts by (process, stack), open addressing: a Map of boxed keys takes ten times as long. */
class PairCounts {
  private capacityMask = (1 << 12) - 1;
  private slots = new Int32Array(1 << 12).fill(-1);
  process = new Uint32Array(1 << 11);
  stack = new Uint32Array(1 << 11);
  count = new Float64Array(1 << 11);
  size = 0;

  add(process: number, stack: number, count: number): void {
    let slot = this.hash(process, stack);
    for (;;) {
      const pair = this.slots[slot] as number;
      if (pair < 0) break;
      if (this.stack[pair] === stack && this.process[pair] === process) {
        (this.count[pair] as number) += count;
        return;
      }
      slot = (slot + 1) & this.capacityMask;
    }
    this.slots[slot] = this.size;
    this.process[this.size] = process;
    this.stack[this.size] = stack;
    this.count[this.size] = count;
    this.size += 1;
    if (this.size === this.process.length) this.grow();
  }

  private hash(process: number, stack: number): number {
    const mixed = Math.imul(stack ^ Math.imul(process, 0x9e3779b1), 0x85ebca6b);
    return (mixed ^ (mixed >>> 15)) & this.capacityMask;
  }

  private grow(): void {
    const larger = this.process.length * 2;
    const process = new Uint32Array(larger);
    const stack = new Uint32Array(larger);
    const count = new Float64Array(larger);
    process.set(this.process);
    stack.set(this.stack);
    count.set(this.count);
    this.process = process;
    this.stack = stack;
    this.count = count;
    this.slots = new Int32Array(larger * 2).fill(-1);
    this.capacityMask = larger * 2 - 1;
    for (let pair = 0; pair < this.size; pair++) {
      let slot = this.hash(process[pair] as number, stack[pair] as number);
      while ((this.slots[slot] as number) >= 0) slot = (slot + 1) & this.capacityMask;
      this.slots[slot] = pair;
    }
  }
}

export interface GatherOptions {
  idle: boolean;
}

/** The window's samples that pass the masks. */
export function gather(night: Night, wanted: Window, masks: Masks, options: GatherOptions): Gathered {
  const window = snapped(night.header, wanted);
  const { rowTask, rowCore, rowStack, rowCount, rowIdle, taskProcess } = night;
  let core = masks.core;
  let cores = masks.cores;
  if (window.cores) {
    const chosen = new Set(window.cores);
    cores = cores.filter((number) => chosen.has(number));
    core = new Uint8Array(NO_CORE + 1);
    for (const number of cores) core[number] = 1;
  }
  const pairs = new PairCounts();
  const byTask = new Float64Array(night.taskPid.length);
  const [begin, end] = rowRange(night, window.beginUs, window.endUs);
  let samples = 0;
  let idleHidden = 0;
  let coreless = 0;
  for (let row = begin; row < end; row++) {
    const task = rowTask[row] as number;
    if (masks.task[task] === 0) continue;
    const count = rowCount[row] as number;
    if (core[rowCore[row] as number] === 0) {
      if (rowCore[row] === NO_CORE && (options.idle || rowIdle[row] === 0)) coreless += count;
      continue;
    }
    if (rowIdle[row] === 1 && !options.idle) {
      idleHidden += count;
      continue;
    }
    samples += count;
    (byTask[task] as number) += count;
    pairs.add(taskProcess[task] as number, rowStack[row] as number, count);
  }
  return {
    window,
    process: pairs.process.subarray(0, pairs.size),
    stack: pairs.stack.subarray(0, pairs.size),
    count: pairs.count.subarray(0, pairs.size),
    samples,
    idleHidden,
    coreless,
    rows: end - begin,
    byTask,
    capacity: capacity(night.header, window, cores.length),
  };
}
