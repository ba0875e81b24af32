/** Reads the data embedded in the page: base64 of gzip of a payload. */
import { DamagedNight, type Night } from "./night";
import { PayloadReader, type Reading } from "./payload";

// A multiple of 4, so that each slice is valid base64; small enough to keep the page responsive.
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

/** Decompresses and decodes gzip bytes from any stream. */
export async function readPacked(packed: ReadableStream<Uint8Array<ArrayBuffer>>, reading: Reading): Promise<Night> {
  const payload = new PayloadReader(reading);
  const chunks = packed.pipeThrough(new DecompressionStream("gzip")).getReader();
  for (;;) {
    let part: ReadableStreamReadResult<Uint8Array>;
    try {
      part = await chunks.read();
    } catch (error) {
      if (error instanceof DamagedNight) throw error;
      throw new DamagedNight("The data in this file is damaged: it cannot be decompressed. Was the file truncated while it was copied?");
    }
    if (part.done) return payload.finish();
    payload.push(part.value);
  }
}

/** Reads the data of the page; null if it has none. */
export async function readPage(page: Document, reading: Reading): Promise<Night | null> {
  const element = page.getElementById("night");
  const embedded = element?.textContent?.trim() ?? "";
  // overnight writes one line; a tool that wraps lines does so from the beginning.
  const text = /\s/.test(embedded.slice(0, 1024)) ? embedded.replace(/\s+/g, "") : embedded;
  element?.remove(); // tens of megabytes of text, not needed again
  return text === "" ? null : readPacked(packedStream(text), reading);
}
