/** Windows of a night: their rows, resolution and capacity. */
import type { Detail, Header, Night } from "../data/night";

/** `cores` null means every core; otherwise core numbers. */
export interface Window {
  beginUs: number;
  endUs: number;
  cores: number[] | null;
}

const ROW_UNIT_US = 100;

/** The parts with different resolution, in order; without any, every sample is stored. */
export function details(header: Header): Detail[] {
  if (header.detail.length === 0) {
    return [{ begin_us: header.begin_us, end_us: header.end_us, step_us: 0, per_core: true }];
  }
  return [...header.detail].sort((a, b) => a.begin_us - b.begin_us);
}

export function detailAt(header: Header, us: number): Detail | null {
  return details(header).find((part) => us >= part.begin_us && us < part.end_us) ?? null;
}

/** Widens a window to whole steps where only sums are stored. */
export function snapped(header: Header, window: Window): Window {
  const first = detailAt(header, window.beginUs);
  const last = detailAt(header, window.endUs - 1);
  let { beginUs, endUs } = window;
  if (first && first.step_us > 0) {
    beginUs = first.begin_us + Math.floor((beginUs - first.begin_us) / first.step_us) * first.step_us;
  }
  if (last && last.step_us > 0) {
    const steps = Math.ceil((endUs - last.begin_us) / last.step_us);
    endUs = Math.min(last.end_us, last.begin_us + steps * last.step_us);
  }
  return { ...window, beginUs, endUs };
}

function firstAtOrAfter(times: Uint32Array, value: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((times[middle] as number) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The rows from `beginUs` up to, but excluding, `endUs`. */
export function rowRange(night: Night, beginUs: number, endUs: number): [number, number] {
  const origin = night.header.begin_us;
  const begin = firstAtOrAfter(night.rowTime, Math.ceil((beginUs - origin) / ROW_UNIT_US));
  return [begin, Math.max(begin, firstAtOrAfter(night.rowTime, Math.ceil((endUs - origin) / ROW_UNIT_US)))];
}

export function rowTimeUs(night: Night, row: number): number {
  return night.header.begin_us + (night.rowTime[row] as number) * ROW_UNIT_US;
}

/** Recorded seconds of the window, without gaps. */
export function recordedSeconds(header: Header, window: Window): number {
  const begin = Math.max(window.beginUs, header.begin_us);
  const end = Math.min(window.endUs, header.end_us);
  let recorded = Math.max(0, end - begin);
  let covered = begin;
  for (const gap of [...header.gaps].sort((a, b) => a.begin_us - b.begin_us)) {
    const from = Math.max(gap.begin_us, covered);
    const to = Math.min(gap.end_us, end);
    if (to > from) {
      recorded -= to - from;
      covered = to;
    }
  }
  return recorded / 1e6;
}

/** The three denominators of a share. */
export interface Capacity {
  seconds: number;
  cores: number;
  coreSeconds: number;
  /** Samples if every core were always busy; NaN if the frequency is unknown. */
  samples: number;
  /** Samples of one busy core in the window; NaN if the frequency is unknown. */
  samplesOfOneCore: number;
}

export function capacity(header: Header, window: Window, cores: number): Capacity {
  const seconds = recordedSeconds(header, window);
  const samplesOfOneCore = header.frequency > 0 ? header.frequency * seconds : NaN;
  return { seconds, cores, coreSeconds: seconds * cores, samples: samplesOfOneCore * cores, samplesOfOneCore };
}
