/** The cells of the heatmap that have samples matching search and filters. */
import { NO_CORE, type Night } from "../data/night";
import type { Masks } from "./filter";
import { columnsIn } from "./heat";
import { details, rowRange, rowTimeUs } from "./window";

const MAX_COUNT = 65535;

export interface Paint {
  /** Matching samples of each cell, as the heatmap's own arrays. */
  cells: Uint16Array;
  /** One byte per column, also for samples whose core is unknown. */
  columns: Uint8Array;
  painted: number;
  samples: number;
}

/** One byte per stack and per task; a row matches if either does. */
export interface Matching {
  stack: Uint8Array;
  task: Uint8Array;
}

/** Counts every sample that passes the masks if `matching` is null. */
export function paint(night: Night, masks: Masks, matching: Matching | null): Paint {
  const { header, rowCore, rowTask, rowStack, rowCount, rowIdle } = night;
  const cores = header.cores.length;
  const cells = new Uint16Array(header.heat.columns * cores);
  const columns = new Uint8Array(header.heat.columns);
  const indexOf = new Int32Array(NO_CORE + 1).fill(-1);
  header.cores.forEach((core, index) => (indexOf[core] = index));
  let painted = 0;
  let samples = 0;
  for (const part of details(header)) {
    const [begin, end] = rowRange(night, part.begin_us, part.end_us);
    const reach = Math.max(1, part.step_us);
    for (let row = begin; row < end; row++) {
      if (matching && matching.stack[rowStack[row] as number] === 0 && matching.task[rowTask[row] as number] === 0) continue;
      const core = rowCore[row] as number;
      if (rowIdle[row] === 1 || masks.task[rowTask[row] as number] === 0 || masks.core[core] === 0) continue;
      samples += rowCount[row] as number;
      const at = rowTimeUs(night, row);
      const [first, last] = columnsIn(header, at, Math.min(at + reach, part.end_us));
      const index = indexOf[core] as number;
      const each = Math.max(1, Math.round((rowCount[row] as number) / Math.max(1, last - first)));
      for (let column = first; column < last; column++) {
        columns[column] = 1;
        if (index < 0) continue;
        const cell = column * cores + index;
        if (cells[cell] === 0) painted += 1;
        cells[cell] = Math.min(MAX_COUNT, (cells[cell] as number) + each);
      }
    }
  }
  return { cells, columns, painted, samples };
}
