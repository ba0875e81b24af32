/** The sub-second heatmap: seconds across, offset within the second down, from rows kept whole. */
import type { Night } from "../data/night";
import type { Masks } from "./filter";
import type { Grid } from "./heat";
import type { Matching } from "./paint";
import { details, rowRange } from "./window";

export const SUBSECOND_ROWS = 50;
export const SUBSECOND_STEP_US = 1e6 / SUBSECOND_ROWS;

export interface SubsecondGrid extends Grid {
  firstSecond: number;
  seconds: number;
  /** What a value of 1 stands for: the fullest cell's share of capacity (or its samples). */
  fullest: number;
  /** Cells of the same shape: matching samples, 1 where they are most. */
  hits: Float32Array;
  painted: number;
}

/**
 * Not-idle samples by second and 20 ms, of the rows kept whole, one column for each of at most
 * `mostColumns`; several seconds that share a column show their maximum.
 */
export function subsecondGrid(
  night: Night,
  masks: Masks,
  beginUs: number,
  endUs: number,
  mostColumns: number,
  matching: Matching | null,
): SubsecondGrid {
  const firstSecond = Math.floor(beginUs / 1e6);
  const seconds = Math.max(1, Math.ceil(endUs / 1e6) - firstSecond);
  const width = Math.max(1, Math.min(mostColumns, seconds));
  const counts = new Uint32Array(seconds * SUBSECOND_ROWS);
  const marks = new Uint32Array(counts.length);
  const { rowTime, rowCore, rowTask, rowStack, rowCount, rowIdle } = night;
  const phase = (night.header.begin_us - firstSecond * 1e6) / 100;
  for (const part of details(night.header)) {
    if (part.step_us !== 0) continue;
    const [begin, end] = rowRange(night, Math.max(part.begin_us, firstSecond * 1e6), Math.min(part.end_us, (firstSecond + seconds) * 1e6));
    for (let row = begin; row < end; row++) {
      if (rowIdle[row] === 1 || masks.task[rowTask[row] as number] === 0 || masks.core[rowCore[row] as number] === 0) continue;
      const cell = Math.floor(((rowTime[row] as number) + phase) / 200);
      (counts[cell] as number) += rowCount[row] as number;
      if (matching && (matching.stack[rowStack[row] as number] === 1 || matching.task[rowTask[row] as number] === 1)) (marks[cell] as number) += rowCount[row] as number;
    }
  }
  const values = new Float32Array(width * SUBSECOND_ROWS);
  const hits = new Float32Array(values.length);
  let most = 0;
  let mostMarks = 0;
  let painted = 0;
  for (let second = 0; second < seconds; second++) {
    const x = Math.floor((second * width) / seconds);
    for (let y = 0; y < SUBSECOND_ROWS; y++) {
      const count = counts[second * SUBSECOND_ROWS + y] as number;
      const at = x * SUBSECOND_ROWS + y;
      if (count > (values[at] as number)) values[at] = count;
      if (count > most) most = count;
      const mark = marks[second * SUBSECOND_ROWS + y] as number;
      if (mark === 0) continue;
      painted += 1;
      hits[at] = Math.max(hits[at] as number, mark);
      mostMarks = Math.max(mostMarks, mark);
    }
  }
  for (let i = 0; i < values.length; i++) values[i] = most === 0 ? 0 : (values[i] as number) / most;
  for (let i = 0; i < hits.length; i++) hits[i] = mostMarks === 0 ? 0 : (hits[i] as number) / mostMarks;
  const capacity = night.header.frequency * 0.02 * masks.cores.length;
  const fullest = capacity > 0 ? most / capacity : NaN;
  return { width, rows: SUBSECOND_ROWS, values, firstSecond, seconds, fullest, hits, painted };
}
