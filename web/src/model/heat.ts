/** The whole-night heatmap: shares by column and core, maxima when columns are narrower than pixels. */
import type { Header, Overview } from "../data/night";

export type HeatMeasure = "busy" | "kernel";

/** Values from 0 to 1, index = x * rows + y. */
export interface Grid {
  width: number;
  rows: number;
  values: Float32Array;
}

/** Samples of a saturated cell: one core, one step. */
export function fullCell(overview: Overview): number {
  const { header, heatBusy } = overview;
  if (header.frequency > 0) return (header.frequency * header.heat.step_us) / 1e6;
  let most = 1;
  for (let i = 0; i < heatBusy.length; i++) most = Math.max(most, heatBusy[i] as number);
  return most;
}

/** The columns [first, last) that lie under [beginUs, endUs). */
export function columnsIn(header: Header, beginUs: number, endUs: number): [number, number] {
  const { begin_us, step_us, columns } = header.heat;
  const first = Math.max(0, Math.min(columns, Math.floor((beginUs - begin_us) / step_us)));
  const last = Math.max(first, Math.min(columns, Math.ceil((endUs - begin_us) / step_us)));
  return [first, last];
}

/**
 * One value a pixel and core: the largest of the columns under the pixel, because a mean hides a
 * core that was pinned for six of the thirty seconds that share its pixel.
 */
export function maxima(
  counts: Uint16Array,
  header: Header,
  beginUs: number,
  endUs: number,
  width: number,
  coreIndexes: number[],
  full: number,
): Grid {
  const cores = header.cores.length;
  const rows = coreIndexes.length;
  const values = new Float32Array(width * rows);
  const span = (endUs - beginUs) / width;
  for (let x = 0; x < width; x++) {
    const [first, last] = columnsIn(header, beginUs + x * span, beginUs + (x + 1) * span);
    for (let column = first; column < last; column++) {
      const from = column * cores;
      for (let y = 0; y < rows; y++) {
        const value = counts[from + (coreIndexes[y] as number)] as number;
        if (value > (values[x * rows + y] as number)) values[x * rows + y] = value;
      }
    }
  }
  for (let i = 0; i < values.length; i++) values[i] = Math.min(1, (values[i] as number) / full);
  return { width, rows, values };
}

/** A core saturated in the kernel for a while. */
export interface PinnedRun {
  core: number;
  beginUs: number;
  endUs: number;
}

export const PINNED_SHARE = 0.9;
export const PINNED_LEAST_US = 3e6;

/** Runs of at least 3 s in which a core spent 90 % in the kernel, longest first. */
export function pinnedRuns(overview: Overview): PinnedRun[] {
  const { header, heatKernel } = overview;
  const { begin_us, step_us, columns } = header.heat;
  const cores = header.cores.length;
  const least = PINNED_SHARE * fullCell(overview);
  const leastColumns = Math.max(1, Math.ceil(PINNED_LEAST_US / step_us));
  const runs: PinnedRun[] = [];
  const since = new Int32Array(cores).fill(-1);
  for (let column = 0; column <= columns; column++) {
    for (let index = 0; index < cores; index++) {
      const pinned = column < columns && (heatKernel[column * cores + index] as number) >= least;
      if (pinned) {
        if ((since[index] as number) < 0) since[index] = column;
        continue;
      }
      const first = since[index] as number;
      since[index] = -1;
      if (first < 0 || column - first < leastColumns) continue;
      runs.push({ core: header.cores[index] as number, beginUs: begin_us + first * step_us, endUs: begin_us + column * step_us });
    }
  }
  return runs.sort((a, b) => b.endUs - b.beginUs - (a.endUs - a.beginUs) || a.beginUs - b.beginUs);
}
