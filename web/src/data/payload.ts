/** Decodes a payload as its bytes arrive: the overview first, then the rest. */
import { checkHeader } from "./header";
import { DamagedNight, type Header, type Night, type Overview } from "./night";

const TYPES = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, i32: Int32Array } as const;
type TypeName = keyof typeof TYPES;

const MAX_BYTES = 1 << 30;
const MAX_HEADER_BYTES = 1 << 28;

export interface Reading {
  overview(overview: Overview): void;
}

function damaged(problem: string): DamagedNight {
  return new DamagedNight(`The data in this file is damaged: ${problem}.`);
}

/** Takes chunks of the decompressed payload in order; `finish` returns the night, or throws DamagedNight. */
export class PayloadReader {
  private early: Uint8Array[] = [];
  private earlyBytes = 0;
  private header: Header | null = null;
  private area: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  private filled = 0;
  private overviewEnd = 0;
  private overviewSent = false;

  constructor(private readonly reading: Reading) {}

  push(chunk: Uint8Array): void {
    if (this.header) {
      this.fill(chunk);
      return;
    }
    this.early.push(chunk);
    this.earlyBytes += chunk.length;
    if (this.earlyBytes < 4) return;
    const length = new DataView(joined(this.early, 4).buffer).getUint32(0, true);
    if (length > MAX_HEADER_BYTES) throw damaged("the header is too long");
    if (this.earlyBytes < 4 + length) return;
    const all = joined(this.early, this.earlyBytes);
    this.early = [];
    this.begin(all.subarray(4, 4 + length));
    this.fill(all.subarray(4 + length));
  }

  finish(): Night {
    const header = this.header;
    if (!header) throw damaged("the file ends inside the header");
    if (this.filled < this.area.length) {
      throw damaged(`the samples end after ${this.filled} of ${this.area.length} bytes`);
    }
    const of = <T extends TypeName>(name: string, type: T) => view(header, this.area, name, type);
    const night: Night = {
      ...this.seen(header),
      frameName: of("frame_name", "u32"),
      frameModule: of("frame_module", "u32"),
      frameKind: of("frame_kind", "u8"),
      stackOffset: of("stack_offset", "u32"),
      stackFrame: of("stack_frame", "u32"),
      taskPid: of("task_pid", "i32"),
      taskTid: of("task_tid", "i32"),
      taskThread: of("task_thread", "u32"),
      taskProcess: of("task_process", "u32"),
      taskUnit: of("task_unit", "u32"),
      rowTime: of("row_time", "u32"),
      rowCore: of("row_core", "u16"),
      rowTask: of("row_task", "u32"),
      rowStack: of("row_stack", "u32"),
      rowCount: of("row_count", "u32"),
      rowIdle: of("row_idle", "u8"),
    };
    checkIndices(night);
    return night;
  }

  private begin(bytes: Uint8Array): void {
    let parsed: unknown;
    try {
      parsed = JSON.parse(new TextDecoder("utf-8").decode(bytes));
    } catch {
      throw damaged("the header is not JSON");
    }
    const header = checkHeader(parsed);
    let end = 0;
    for (const [name, place] of Object.entries(header.arrays)) {
      const type = TYPES[place.type as TypeName];
      if (!type) throw damaged(`array ${name} has the unknown type ${place.type}`);
      if (place.offset % type.BYTES_PER_ELEMENT !== 0) throw damaged(`array ${name} is not aligned`);
      const arrayEnd = place.offset + place.length * type.BYTES_PER_ELEMENT;
      end = Math.max(end, arrayEnd);
      if (name.startsWith("heat_")) this.overviewEnd = Math.max(this.overviewEnd, arrayEnd);
    }
    if (end > MAX_BYTES) throw damaged("it has more samples than a browser can hold");
    this.header = header;
    this.area = new Uint8Array(end);
  }

  private fill(chunk: Uint8Array): void {
    const room = this.area.length - this.filled;
    this.area.set(chunk.length > room ? chunk.subarray(0, room) : chunk, this.filled);
    this.filled += Math.min(chunk.length, room);
    if (!this.overviewSent && this.header && this.filled >= this.overviewEnd) {
      this.overviewSent = true;
      this.reading.overview(this.seen(this.header));
    }
  }

  private seen(header: Header): Overview {
    const cells = header.heat.columns * header.cores.length;
    const heatBusy = view(header, this.area, "heat_busy", "u16");
    const heatKernel = view(header, this.area, "heat_kernel", "u16");
    if (heatBusy.length !== cells || heatKernel.length !== cells) throw damaged("the heatmap has the wrong size");
    return { header, heatBusy, heatKernel };
  }
}

function joined(chunks: Uint8Array[], most: number): Uint8Array {
  const all = new Uint8Array(most);
  let at = 0;
  for (const chunk of chunks) {
    if (at >= most) break;
    all.set(chunk.subarray(0, most - at), at);
    at += chunk.length;
  }
  return all;
}

function view<T extends TypeName>(header: Header, area: Uint8Array<ArrayBuffer>, name: string, type: T): InstanceType<(typeof TYPES)[T]> {
  const place = header.arrays[name];
  if (!place) throw damaged(`array ${name} is missing`);
  if (place.type !== type) throw damaged(`array ${name} is ${place.type}, not ${type}`);
  return new TYPES[type](area.buffer, place.offset, place.length) as InstanceType<(typeof TYPES)[T]>;
}

function checkBelow(values: ArrayLike<number>, limit: number, name: string): void {
  for (let i = 0; i < values.length; i++) {
    if ((values[i] as number) >= limit) throw damaged(`${name} points past the end of its table`);
  }
}

function checkLengths(name: string, ...arrays: { length: number }[]): void {
  for (const array of arrays) {
    if (array.length !== arrays[0]?.length) throw damaged(`the columns of ${name} differ in length`);
  }
}

function checkAscending(values: Uint32Array, name: string): void {
  for (let i = 1; i < values.length; i++) {
    if ((values[i] as number) < (values[i - 1] as number)) throw damaged(`${name} is not in order`);
  }
}

function checkIndices(night: Night): void {
  const strings = night.header.strings.length;
  checkLengths("frames", night.frameName, night.frameModule, night.frameKind);
  checkLengths("tasks", night.taskPid, night.taskTid, night.taskThread, night.taskProcess, night.taskUnit);
  checkLengths("rows", night.rowTime, night.rowCore, night.rowTask, night.rowStack, night.rowCount, night.rowIdle);
  for (const [name, values] of Object.entries({
    frame_name: night.frameName,
    frame_module: night.frameModule,
    task_thread: night.taskThread,
    task_process: night.taskProcess,
    task_unit: night.taskUnit,
  })) {
    checkBelow(values, strings, name);
  }
  checkBelow(night.stackFrame, night.frameName.length, "stack_frame");
  checkBelow(night.rowTask, night.taskPid.length, "row_task");
  checkBelow(night.rowStack, Math.max(0, night.stackOffset.length - 1), "row_stack");
  checkAscending(night.rowTime, "row_time");
  checkAscending(night.stackOffset, "stack_offset");
  if ((night.stackOffset.at(-1) ?? 0) > night.stackFrame.length) throw damaged("stack_offset points past the end of its table");
}
