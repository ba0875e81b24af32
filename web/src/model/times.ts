/** Formats times: UTC, since the begin, and axis ticks at round intervals. */

const STEPS_US = [
  1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 1.5e7, 3e7, 6e7, 12e7, 3e8, 6e8, 9e8, 18e8, 36e8,
  72e8, 108e8, 216e8, 432e8, 864e8, 1728e8, 6048e8,
];

function two(value: number): string {
  return String(Math.floor(value)).padStart(2, "0");
}

function fraction(us: number, digits: number): string {
  if (digits === 0) return "";
  const part = Math.floor((((us % 1e6) + 1e6) % 1e6) / 10 ** (6 - digits));
  return `.${String(part).padStart(digits, "0")}`;
}

/** "02:10:03", with the given number of decimals. */
export function clock(us: number, digits = 0): string {
  const seconds = Math.floor(us / 1e6);
  const day = ((seconds % 86400) + 86400) % 86400;
  return `${two(day / 3600)}:${two((day / 60) % 60)}:${two(day % 60)}${fraction(us, digits)}`;
}

/** "2026-11-15". */
export function day(us: number): string {
  const date = new Date(us / 1000);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString().slice(0, 10);
}

/** "2026-11-15T02:10:03Z". */
export function instant(us: number): string {
  return `${day(us)}T${clock(us)}Z`;
}

/** "+1h 02m 03s" since the night's begin. */
export function since(us: number, digits = 0): string {
  const sign = Math.round(us) < 0 ? "\u2212" : "+";
  const rest = Math.abs(us);
  const seconds = Math.floor(rest / 1e6);
  const s = `${two(seconds % 60)}${fraction(rest, digits)}s`;
  if (seconds >= 3600) return `${sign}${Math.floor(seconds / 3600)}h${two((seconds / 60) % 60)}m${s}`;
  return `${sign}${Math.floor(seconds / 60)}m${s}`;
}

/** "5.9 s", "12 min", "1 h 30 min", "20 ms". */
export function duration(us: number): string {
  if (us < 1e3) return `${Math.round(us)} \u00b5s`;
  if (us < 1e6) return `${trimmed(us / 1e3)} ms`;
  if (us < 120e6) return `${trimmed(us / 1e6)} s`;
  const minutes = Math.round(us / 60e6);
  if (us < 7200e6) return us % 60e6 < 1e6 ? `${minutes} min` : `${Math.floor(us / 60e6)} min ${Math.round((us % 60e6) / 1e6)} s`;
  return minutes % 60 === 0 ? `${minutes / 60} h` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function trimmed(value: number): string {
  return value >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
}

/** 12345 as "12,345". */
export function grouped(value: number): string {
  return Math.round(value).toLocaleString("en-GB");
}

/** Formats a share as a percentage. */
export function percent(share: number): string {
  if (!Number.isFinite(share)) return "unknown";
  const value = share * 100;
  const size = Math.abs(value);
  return `${size === 0 || size >= 99.95 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : size >= 0.1 ? value.toFixed(2) : value.toPrecision(1)} %`;
}

export interface Ticks {
  times: number[];
  stepUs: number;
  digits: number;
}

/** Instants at round distances from `origin`, at most about `most` of them between begin and end. */
export function ticks(beginUs: number, endUs: number, most: number, origin = 0): Ticks {
  const span = Math.max(1, endUs - beginUs);
  const step = STEPS_US.find((candidate) => span / candidate <= Math.max(1, most)) ?? 6048e8;
  const digits = step >= 1e6 ? 0 : step >= 1e5 ? 1 : step >= 1e4 ? 2 : 3;
  const times: number[] = [];
  for (let at = origin + Math.ceil((beginUs - origin) / step) * step; at <= endUs; at += step) times.push(at);
  return { times, stepUs: step, digits };
}
