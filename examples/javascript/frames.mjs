// The frames of the control protocol: a length, then one msgpack array whose first element is the header.

import { decode, encode } from "./msgpack.mjs";

export const Kind = Object.freeze({
  REQUEST: 0x80,
  RESULT: 0x81,
  ERROR: 0x82,
  ITEM: 0x83,
  END: 0x84,
  CONSUMED: 0x85,
  CANCEL: 0x86,
  SEGMENT: 0x87,
  CLOSE: 0x89,
  CONSUMED_PIECES: 0x8a,
  SETTLED: 0x8b,
  CONSUMED_BROADCASTS: 0x8e,
});

const HEADER_BYTES = 32;
const SEQUENCE_AT = 24;
const BODY_BYTES_MIN = 3 + HEADER_BYTES;
const BODY_BYTES_MAX = 16_777_216;

/** The bytes of one frame. */
export function frame(kind, sequence, ...elements) {
  const header = Buffer.alloc(HEADER_BYTES);
  header[0] = kind;
  header.writeBigUInt64BE(BigInt(sequence), SEQUENCE_AT);
  const body = encode([header, ...elements]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length);
  return Buffer.concat([length, body]);
}

/** Cuts what a socket gives into frames: `{kind, sequence, elements}`. */
export class Splitter {
  #chunks = [];
  #bytes = 0;

  /** The frames that are whole now that `chunk` came. Throws RangeError for what no daemon sends. */
  *feed(chunk) {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    while (this.#bytes >= 4) {
      const length = this.#peek(4).readUInt32BE(0);
      if (length < BODY_BYTES_MIN || length > BODY_BYTES_MAX) throw new RangeError(`a frame of ${length} bytes`);
      if (this.#bytes < 4 + length) return;
      yield parsed(this.#take(4 + length).subarray(4));
    }
  }

  // Chunks are joined only when a frame needs it, so that a long frame costs no repeated copies.
  #peek(count) {
    if (this.#chunks[0].length < count) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0];
  }

  #take(count) {
    const all = this.#peek(count);
    this.#bytes -= count;
    if (all.length === count) this.#chunks.shift();
    else this.#chunks[0] = all.subarray(count);
    return all.subarray(0, count);
  }
}

function parsed(body) {
  const [header, ...elements] = decode(body);
  if (!(header instanceof Uint8Array) || header.length !== HEADER_BYTES) throw new RangeError("a frame without a header");
  return { kind: header[0], sequence: Number(header.readBigUInt64BE(SEQUENCE_AT)), elements };
}
