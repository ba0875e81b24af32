/** Seeded payloads for the tests: a small incident, and a night as large as nights get. */
import { gzipSync } from "node:zlib";
import type { Header } from "../src/data/night";

export type Arrays = Record<string, Uint8Array | Uint16Array | Uint32Array | Int32Array>;

export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

function typeName(array: Arrays[string]): string {
  if (array instanceof Uint8Array) return "u8";
  if (array instanceof Uint16Array) return "u16";
  return array instanceof Int32Array ? "i32" : "u32";
}

export function encode(header: Omit<Header, "arrays">, arrays: Arrays): Uint8Array {
  const places: Header["arrays"] = {};
  let offset = 0;
  for (const [name, array] of Object.entries(arrays)) {
    places[name] = { type: typeName(array), offset, length: array.length };
    offset += Math.ceil(array.byteLength / 8) * 8;
  }
  const json = new TextEncoder().encode(JSON.stringify({ ...header, arrays: places }));
  const headerLength = Math.ceil((json.length + 4) / 8) * 8 - 4;
  const bytes = new Uint8Array(4 + headerLength + offset).fill(0x20, 4, 4 + headerLength);
  new DataView(bytes.buffer).setUint32(0, headerLength, true);
  bytes.set(json, 4);
  for (const [name, array] of Object.entries(arrays)) {
    const at = 4 + headerLength + (places[name] as { offset: number }).offset;
    bytes.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), at);
  }
  return bytes;
}

export function inPage(template: string, payload: Uint8Array): string {
  const packed = gzipSync(payload, { level: 6 }).toString("base64");
  const script = `<script type="application/octet-stream" id="night">${packed}</script>`;
  return template.replace("<!--NIGHT-->", () => script);
}

/** Tables of strings, frames, stacks and tasks, filled as they are named. */
export class Tables {
  strings: string[] = [];
  private ids = new Map<string, number>();
  private frameIds = new Map<string, number>();
  frameName: number[] = [];
  frameModule: number[] = [];
  frameKind: number[] = [];
  stackOffset: number[] = [0];
  stackFrame: number[] = [];
  tasks: { pid: number; tid: number; thread: number; process: number; unit: number }[] = [];

  string(text: string): number {
    let id = this.ids.get(text);
    if (id === undefined) {
      id = this.strings.push(text) - 1;
      this.ids.set(text, id);
    }
    return id;
  }

  /** "name" is a user frame of the module, "name_[k]" a kernel frame. */
  stack(module: string, ...names: string[]): number {
    for (const name of names) {
      const kernel = name.endsWith("_[k]");
      const plain = kernel ? name.slice(0, -4) : name;
      const key = `${plain}\0${kernel ? "" : module}`;
      let id = this.frameIds.get(key);
      if (id === undefined) {
        id = this.frameName.push(this.string(plain)) - 1;
        this.frameModule.push(this.string(kernel ? "[kernel]" : module));
        this.frameKind.push(kernel ? 1 : 0);
        this.frameIds.set(key, id);
      }
      this.stackFrame.push(id);
    }
    return this.stackOffset.push(this.stackFrame.length) - 2;
  }

  task(process: string, unit: string, pid: number, thread = process, tid = pid): number {
    const row = { pid, tid, thread: this.string(thread), process: this.string(process), unit: this.string(unit) };
    return this.tasks.push(row) - 1;
  }

  arrays(): Arrays {
    return {
      frame_name: Uint32Array.from(this.frameName),
      frame_module: Uint32Array.from(this.frameModule),
      frame_kind: Uint8Array.from(this.frameKind),
      stack_offset: Uint32Array.from(this.stackOffset),
      stack_frame: Uint32Array.from(this.stackFrame),
      task_pid: Int32Array.from(this.tasks, (task) => task.pid),
      task_tid: Int32Array.from(this.tasks, (task) => task.tid),
      task_thread: Uint32Array.from(this.tasks, (task) => task.thread),
      task_process: Uint32Array.from(this.tasks, (task) => task.process),
      task_unit: Uint32Array.from(this.tasks, (task) => task.unit),
    };
  }
}
