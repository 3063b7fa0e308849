// Messages into this program: what an ITEM of `read` or of an inbox has in it.

import { Kind } from "./frames.mjs";
import { decodeAll } from "./msgpack.mjs";

/** The messages of ITEMs, long ones put together; pieces are given back as they come. */
export class Incoming {
  #longs = new Map(); // the number of a long message -> its pieces

  constructor(connection) {
    this.connection = connection;
  }

  /** The whole messages that are there with this ITEM, which came by the stream `number`. */
  messagesOf(number, { count, body, long, last, aborted }) {
    if (long === undefined) return decodeAll(body);
    if (aborted !== undefined) {
      this.#longs.delete(long);
      return [];
    }
    const pieces = [...(this.#longs.get(long) ?? []), body];
    this.#longs.set(long, pieces);
    this.connection.write(Kind.CONSUMED_PIECES, number, 1, long);
    if (!last) return [];
    this.#longs.delete(long);
    return [Buffer.concat(pieces)];
  }
}

const HEAD_BYTES = 9;

/** What an answer begins with. */
export const Outcome = Object.freeze({ ANSWER: 0, FAILED: 1, READER_LOST: 2, NO_READER: 3 });

/** `{outcome, question, rest}` of a message that came to an inbox. */
export function answerOf(message) {
  return { outcome: message[0], question: Number(message.readBigUInt64BE(1)), rest: message.subarray(HEAD_BYTES) };
}

/** The message that answers a question. */
export function answerTo(question, outcome, rest) {
  const head = Buffer.alloc(HEAD_BYTES);
  head[0] = outcome;
  head.writeBigUInt64BE(BigInt(question), 1);
  return Buffer.concat([head, rest]);
}
