/** Checks the JSON header of a payload, so that other code can rely on its shape. */
import { DamagedNight, SCHEMA, USER_KINDS, type Header } from "./night";

type Loose = Record<string, unknown>;

function fail(problem: string): never {
  throw new DamagedNight(`The data in this file is damaged: ${problem}.`);
}

function isObject(value: unknown): value is Loose {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function number(value: unknown, name: string, least = -Infinity): number {
  if (typeof value !== "number" || !Number.isFinite(value) || value < least) fail(`${name} is not a valid number`);
  return value;
}

/** Microseconds since the epoch, exact in a double: up to the year 2255. */
function instant(value: unknown, name: string, least = -Number.MAX_SAFE_INTEGER): number {
  const us = number(value, name, least);
  if (Math.abs(us) > Number.MAX_SAFE_INTEGER) fail(`${name} is not a valid time`);
  return us;
}

function list(value: unknown, name: string): unknown[] {
  if (!Array.isArray(value)) fail(`${name} is not a list`);
  return value;
}

function text(value: unknown, name: string): string {
  if (typeof value !== "string") fail(`${name} is not a string`);
  return value;
}

function stretch(value: unknown, name: string): Loose {
  if (!isObject(value)) fail(`${name} is not an object`);
  const begin = instant(value["begin_us"], `${name}.begin_us`);
  instant(value["end_us"], `${name}.end_us`, begin);
  return value;
}

const MAX_ROWS = 1000;

/** Checks the settings that the page opens with; unknown fields of later versions are allowed. */
function checkOpening(value: unknown): void {
  if (!isObject(value)) fail("open is not an object");
  for (const name of ["window", "baseline"]) if (value[name] !== null) stretch(value[name], `open.${name}`);
  for (const name of ["process", "thread", "unit", "cores"]) text(value[name], `open.${name}`);
  if (!(USER_KINDS as readonly unknown[]).includes(value["top"])) fail("open.top is not a table");
  if (value["map"] !== "cores" && value["map"] !== "subsecond") fail("open.map is not a map");
  if (value["measure"] !== "busy" && value["measure"] !== "kernel") fail("open.measure is not a measure");
  if (value["rank"] !== "self" && value["rank"] !== "total") fail("open.rank is not a measure");
  value["limit"] = Math.min(MAX_ROWS, Math.floor(number(value["limit"], "open.limit", 1)));
}

export function checkHeader(value: unknown): Header {
  if (!isObject(value)) fail("the header is not an object");
  if (value["schema"] !== SCHEMA) {
    throw new DamagedNight(
      `This viewer reads ${SCHEMA}, but the data is "${String(value["schema"])}". Create the file again with one version of overnight.`,
    );
  }
  stretch(value, "the night");
  for (const name of ["title", "host", "generated"]) text(value[name], name);
  number(value["frequency"], "frequency", 0);
  number(value["lost"], "lost", 0);
  const cores = list(value["cores"], "cores");
  for (const core of cores) number(core, "a core", 0);
  for (const event of list(value["events"], "events")) {
    if (!isObject(event)) fail("an event is not an object");
    instant(event["time_us"], "an event's time");
    text(event["kind"], "an event's kind");
    text(event["text"], "an event's text");
    if (!["info", "warning", "critical"].includes(String(event["severity"]))) event["severity"] = "info";
    if (typeof event["core"] !== "number") event["core"] = null;
  }
  for (const gap of list(value["gaps"], "gaps")) text(stretch(gap, "a gap")["why"], "a gap's reason");
  for (const note of list(value["notes"], "notes")) text(note, "a note");
  for (const part of list(value["detail"], "detail")) number(stretch(part, "a detail")["step_us"], "a detail's step", 0);
  for (const string of list(value["strings"], "strings")) text(string, "a string");
  const heat = value["heat"];
  if (!isObject(heat)) fail("heat is not an object");
  instant(heat["begin_us"], "heat.begin_us");
  number(heat["step_us"], "heat.step_us", 1);
  number(heat["columns"], "heat.columns", 0);
  const arrays = value["arrays"];
  if (!isObject(arrays)) fail("arrays is not an object");
  for (const [name, place] of Object.entries(arrays)) {
    if (!isObject(place)) fail(`array ${name} has no place`);
    text(place["type"], `the type of ${name}`);
    for (const key of ["offset", "length"]) {
      if (!Number.isSafeInteger(number(place[key], `${name}.${key}`, 0))) fail(`${name}.${key} is not a whole number`);
    }
  }
  if (value["open"] !== undefined) checkOpening(value["open"]);
  return value as unknown as Header;
}
