/** The sub-second heatmap: seconds from left to right, offset within the second from top to bottom. */
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
  /** The meaning of 1: the share of capacity (or the samples) of the fullest cell. */
  fullest: number;
  /** Matching samples of the same cells; 1 is the maximum. */
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
  const columns = new Columns(width, seconds);
  const { rowTime, rowCore, rowTask, rowStack, rowCount, rowIdle } = night;
  const phase = (night.header.begin_us - firstSecond * 1e6) / 100;
  for (const part of details(night.header)) {
    if (part.step_us !== 0) continue;
    const [begin, end] = rowRange(night, Math.max(part.begin_us, firstSecond * 1e6), Math.min(part.end_us, (firstSecond + seconds) * 1e6));
    for (let row = begin; row < end; row++) {
      const task = rowTask[row] as number;
      if (rowIdle[row] === 1 || masks.task[task] === 0 || masks.core[rowCore[row] as number] === 0) continue;
      const matches = matching !== null && (matching.stack[rowStack[row] as number] === 1 || matching.task[task] === 1);
      columns.add(Math.floor(((rowTime[row] as number) + phase) / ROW_UNITS), rowCount[row] as number, matches);
    }
  }
  const capacity = (night.header.frequency / SUBSECOND_ROWS) * masks.cores.length;
  const { most, painted } = columns.finish();
  const fullest = capacity > 0 ? most / capacity : NaN;
  return { width, rows: SUBSECOND_ROWS, values: columns.values, firstSecond, seconds, fullest, hits: columns.hits, painted };
}

/** Rows of the file's time unit, 100 us, in one cell. */
const ROW_UNITS = SUBSECOND_STEP_US / 100;

/** Takes samples in order of time and holds one second: a week needs no more memory than a minute. */
class Columns {
  readonly values: Float32Array;
  readonly hits: Float32Array;
  private readonly counts = new Float64Array(SUBSECOND_ROWS);
  private readonly marks = new Float64Array(SUBSECOND_ROWS);
  private second = -1;
  private painted = 0;

  constructor(
    private readonly width: number,
    private readonly seconds: number,
  ) {
    this.values = new Float32Array(width * SUBSECOND_ROWS);
    this.hits = new Float32Array(width * SUBSECOND_ROWS);
  }

  add(cell: number, count: number, matches: boolean): void {
    const second = Math.floor(cell / SUBSECOND_ROWS);
    if (second !== this.second) {
      this.flush();
      this.second = second;
    }
    const y = cell - second * SUBSECOND_ROWS;
    (this.counts[y] as number) += count;
    if (matches) (this.marks[y] as number) += count;
  }

  /** Scales both so that the fullest cell is 1; `most` is its count. */
  finish(): { most: number; painted: number } {
    this.flush();
    const most = scaled(this.values);
    scaled(this.hits);
    return { most, painted: this.painted };
  }

  private flush(): void {
    if (this.second < 0) return;
    const from = Math.min(this.width - 1, Math.floor((this.second * this.width) / this.seconds)) * SUBSECOND_ROWS;
    for (let y = 0; y < SUBSECOND_ROWS; y++) {
      this.values[from + y] = Math.max(this.values[from + y] as number, this.counts[y] as number);
      this.hits[from + y] = Math.max(this.hits[from + y] as number, this.marks[y] as number);
      if ((this.marks[y] as number) > 0) this.painted += 1;
    }
    this.counts.fill(0);
    this.marks.fill(0);
  }
}

function scaled(values: Float32Array): number {
  let most = 0;
  for (const value of values) most = Math.max(most, value);
  for (let i = 0; i < values.length && most > 0; i++) (values[i] as number) /= most;
  return most;
}
