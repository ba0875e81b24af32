/** Search results as masks over labels and stacks. */
import type { Night } from "../data/night";
import { NameSearch } from "./search";
import type { Gathered } from "./gather";
import type { Matching } from "./paint";

export interface Matches extends Matching {
  pattern: string;
  /** One byte per label (see model/tree): frames, then processes by string id. */
  label: Uint8Array;
  functions: number;
}

/** Searches a night's function names. A process's own name is found as well, in the flame graph. */
export class NightSearch {
  private readonly search: NameSearch;

  constructor(private readonly night: Night) {
    this.search = new NameSearch(night.header.strings);
  }

  forget(): void {
    this.search.forget();
  }

  /** Null if a later search replaced this one. */
  async find(pattern: string): Promise<Matches | null> {
    const { night } = this;
    const matched = await this.search.find(pattern);
    if (!matched) return null;
    const frames = night.frameName.length;
    const label = new Uint8Array(frames + night.header.strings.length);
    let functions = 0;
    for (let frame = 0; frame < frames; frame++) {
      if (matched[night.frameName[frame] as number] === 0) continue;
      label[frame] = 1;
      functions += 1;
    }
    for (const process of new Set(night.taskProcess)) label[frames + process] = matched[process] as number;
    const task = Uint8Array.from(night.taskProcess, (process) => matched[process] as number);
    return { pattern, label, stack: matchingStacks(night, label), task, functions };
  }
}

function matchingStacks(night: Night, label: Uint8Array): Uint8Array {
  const { stackOffset, stackFrame } = night;
  const stacks = new Uint8Array(Math.max(0, stackOffset.length - 1));
  for (let stack = 0; stack < stacks.length; stack++) {
    const end = stackOffset[stack + 1] as number;
    for (let i = stackOffset[stack] as number; i < end; i++) {
      if (label[stackFrame[i] as number] === 1) {
        stacks[stack] = 1;
        break;
      }
    }
  }
  return stacks;
}

/** Samples of the window in which something matches, each counted once. */
export function matchingSamples(gathered: Gathered, matches: Matches, frames: number): number {
  let samples = 0;
  for (let pair = 0; pair < gathered.count.length; pair++) {
    const hit = matches.stack[gathered.stack[pair] as number] === 1 || matches.label[frames + (gathered.process[pair] as number)] === 1;
    if (hit) samples += gathered.count[pair] as number;
  }
  return samples;
}
