/** Samples by function: self, and total with callees; recursion is counted once. */
import type { Night } from "../data/night";
import type { Gathered } from "./gather";

/** Samples by frame index. */
export interface FunctionCounts {
  self: Float64Array;
  total: Float64Array;
}

export function functionCounts(night: Night, gathered: Gathered): FunctionCounts {
  const frames = night.frameName.length;
  const self = new Float64Array(frames);
  const total = new Float64Array(frames);
  const seenIn = new Int32Array(frames).fill(-1);
  const { stackOffset, stackFrame } = night;
  for (let pair = 0; pair < gathered.count.length; pair++) {
    const stack = gathered.stack[pair] as number;
    const count = gathered.count[pair] as number;
    const begin = stackOffset[stack] as number;
    const end = stackOffset[stack + 1] as number;
    for (let i = begin; i < end; i++) {
      const frame = stackFrame[i] as number;
      if (seenIn[frame] === pair) continue;
      seenIn[frame] = pair;
      (total[frame] as number) += count;
    }
    if (end > begin) (self[stackFrame[end - 1] as number] as number) += count;
  }
  return { self, total };
}

export interface FunctionRow {
  frame: number;
  self: number;
  total: number;
}

/** Ranks functions by self or total samples. */
export function topFunctions(counts: FunctionCounts, most: number, measure: "self" | "total" = "self"): FunctionRow[] {
  const rows: FunctionRow[] = [];
  for (let frame = 0; frame < counts.total.length; frame++) {
    const total = counts.total[frame] as number;
    if (total > 0) rows.push({ frame, self: counts.self[frame] as number, total });
  }
  const other = measure === "self" ? "total" : "self";
  return rows.sort((a, b) => b[measure] - a[measure] || b[other] - a[other] || a.frame - b.frame).slice(0, most);
}
