/** Differences between a window and its baseline by function, with 95 % intervals. */
import type { FunctionCounts } from "./functions";

const Z95 = 1.959964;

export interface Interval {
  low: number;
  high: number;
}

/** Score interval of a Poisson count: the means that a 95 % normal test does not reject. */
export function poissonInterval(count: number): Interval {
  const middle = count + (Z95 * Z95) / 2;
  const half = Z95 * Math.sqrt(count + (Z95 * Z95) / 4);
  return { low: Math.max(0, middle - half), high: middle + half };
}

export interface RateDifference extends Interval {
  rate: number;
  baseRate: number;
  difference: number;
}

/**
 * Difference of two Poisson rates with its 95 % interval, by the method of variance estimates
 * recovery from the two score intervals: unlike the plain normal interval it stays valid when
 * one count is zero, which is the case that matters here (a function that appeared or vanished).
 */
export function rateDifference(count: number, exposure: number, baseCount: number, baseExposure: number): RateDifference {
  const interval = poissonInterval(count);
  const baseInterval = poissonInterval(baseCount);
  const rate = count / exposure;
  const baseRate = baseCount / baseExposure;
  const difference = rate - baseRate;
  return {
    rate,
    baseRate,
    difference,
    low: difference - Math.hypot(rate - interval.low / exposure, baseInterval.high / baseExposure - baseRate),
    high: difference + Math.hypot(interval.high / exposure - rate, baseRate - baseInterval.low / baseExposure),
  };
}

/** The end of the interval nearest to 0; 0 if the interval includes it. */
export function surePart(row: Interval): number {
  if (row.low > 0) return row.low;
  return row.high < 0 ? -row.high : 0;
}

export interface DifferenceRow extends RateDifference {
  frame: number;
  count: number;
  baseCount: number;
}

export type Measure = "self" | "total";

/** Ranks functions by the sure part of the difference, then by the difference; rates are samples per core-second. */
export function rankDifferences(
  window: FunctionCounts,
  windowCoreSeconds: number,
  base: FunctionCounts,
  baseCoreSeconds: number,
  measure: Measure,
  most: number,
): DifferenceRow[] {
  if (windowCoreSeconds <= 0 || baseCoreSeconds <= 0) return [];
  const rows: DifferenceRow[] = [];
  for (let frame = 0; frame < window[measure].length; frame++) {
    const count = window[measure][frame] as number;
    const baseCount = base[measure][frame] as number;
    if (count === 0 && baseCount === 0) continue;
    rows.push({ frame, count, baseCount, ...rateDifference(count, windowCoreSeconds, baseCount, baseCoreSeconds) });
  }
  rows.sort((a, b) => surePart(b) - surePart(a) || Math.abs(b.difference) - Math.abs(a.difference) || a.frame - b.frame);
  return rows.slice(0, most);
}
