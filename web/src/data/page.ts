/** Reads the night that overnight put into the page itself: base64 of gzip of a payload. */
import { DamagedNight, type Night } from "./night";
import { PayloadReader, type Reading } from "./payload";

// A multiple of 4, so that each slice is base64 of its own; small enough to keep the page alive.
const SLICE = 1 << 20;

// Newer browsers decode natively, without a string of tens of megabytes in between.
const native = (Uint8Array as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;

export function base64Bytes(text: string): Uint8Array<ArrayBuffer> {
  let binary: string;
  try {
    if (native) return native.call(Uint8Array, text);
    binary = atob(text);
  } catch {
    throw new DamagedNight("The data in this file is damaged: it is not base64.");
  }
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

function packedStream(text: string): ReadableStream<Uint8Array<ArrayBuffer>> {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= text.length) {
        controller.close();
        return;
      }
      controller.enqueue(base64Bytes(text.slice(at, at + SLICE)));
      at += SLICE;
    },
  });
}

/** Unpacks gzip bytes from anywhere (the page, a server) into a night. */
export async function readPacked(packed: ReadableStream<Uint8Array<ArrayBuffer>>, reading: Reading): Promise<Night> {
  const payload = new PayloadReader(reading);
  const chunks = packed.pipeThrough(new DecompressionStream("gzip")).getReader();
  for (;;) {
    let part: ReadableStreamReadResult<Uint8Array>;
    try {
      part = await chunks.read();
    } catch (error) {
      if (error instanceof DamagedNight) throw error;
      throw new DamagedNight("The data in this file is damaged: it cannot be unpacked. Was it cut off while being copied?");
    }
    if (part.done) return payload.finish();
    payload.push(part.value);
  }
}

/** The page's own night, or null where the page holds none. */
export async function readPage(page: Document, reading: Reading): Promise<Night | null> {
  const holder = page.getElementById("night");
  const held = holder?.textContent?.trim() ?? "";
  // overnight writes one line; a file that a tool has wrapped shows that at its beginning.
  const text = /\s/.test(held.slice(0, 1024)) ? held.replace(/\s+/g, "") : held;
  holder?.remove(); // tens of megabytes of text that nobody needs again
  return text === "" ? null : readPacked(packedStream(text), reading);
}
