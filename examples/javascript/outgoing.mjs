// A stream of messages out of this program: the sink of `questions` and `answers`.
//
// Theory of operation. Each message is a SEGMENT of its own, numbered from 1. A SEGMENT is put when its cost
// fits into the credit, or when all before it are done; until then it waits here. An ITEM says below which
// number all are done, which of them were not taken, and what the credit is now.

import { BmgdError } from "./connection.mjs";
import { Kind } from "./frames.mjs";
import { encode } from "./msgpack.mjs";

const COST_OF_A_SEGMENT = 256; // beside the bytes of its body

/** The longest message that fits into one SEGMENT. Longer ones would go in pieces, which this client does not send. */
export const MESSAGE_BYTES_MAX = 65_536;

export class Outgoing {
  #connection;
  #onOver;
  #number = 0;
  #credit = 0;
  #next = 1; // the number of the next SEGMENT
  #open = false;
  #waiting = []; // { body, until, onPut, onTaken, onFailed }
  #underway = new Map(); // the number of a SEGMENT -> { cost, onTaken, onFailed }
  #error = null;

  /** The answer to the request that opened it, once it is open. */
  opened;

  /** `onOver(error)` is called when the stream has ended. */
  constructor(connection, verb, parameters, onOver = () => {}) {
    this.#connection = connection;
    this.#onOver = onOver;
    const { number, answer } = connection.open(verb, parameters, this);
    this.#number = number;
    this.opened = answer.then((value) => {
      this.#open = true;
      this.#credit = value.credit;
      this.#serve();
      return value;
    });
    this.opened.catch((error) => this.onEnd(error));
  }

  get over() {
    return this.#error !== null;
  }

  /** Whether nothing is underway or waits. */
  get idle() {
    return this.#underway.size === 0 && this.#waiting.length === 0;
  }

  /** No further message: the daemon may forget the stream, and its number counts no more among those in use. */
  close() {
    this.#error ??= new BmgdError("RequestError", "the stream is closed", { sent: false });
    this.#connection.write(Kind.CLOSE, this.#number);
  }

  /**
   * Send one message. `onPut` is called when it leaves this program; then `onTaken` when the other daemon
   * has it, or `onFailed(error)` when that is not known. Returns what takes it back while it waits here.
   */
  send(message, timeout, { onPut = () => {}, onTaken = () => {}, onFailed }) {
    const refused = this.#error ?? tooLong(message);
    if (refused) {
      onFailed(refused);
      return () => {};
    }
    const waiting = { body: encode(message), until: performance.now() + 1000 * timeout, onPut, onTaken, onFailed };
    this.#waiting.push(waiting);
    this.#serve();
    return () => {
      this.#waiting = this.#waiting.filter((other) => other !== waiting);
    };
  }

  onEnd(error) {
    this.#error = error ?? this.#error ?? new BmgdError("RequestError", "the stream is closed", { sent: false });
    for (const { onFailed } of [...this.#underway.values(), ...this.#waiting]) onFailed(this.#error);
    this.#underway.clear();
    this.#waiting = [];
    this.#onOver(this.#error);
  }

  onItem({ next, credit, withdrawn = [], doubted = [], error = "", detail = "" }) {
    for (const number of [...withdrawn, ...doubted]) {
      const failure = new BmgdError(error, detail, { detail, sent: doubted.includes(number) });
      this.#underway.get(number)?.onFailed(failure);
      this.#underway.delete(number);
    }
    for (const [number, { onTaken }] of this.#underway) {
      if (number >= next) break;
      this.#underway.delete(number);
      onTaken();
    }
    this.#credit = credit;
    this.#serve();
  }

  #serve() {
    if (!this.#open) return;
    while (this.#waiting.length) {
      const cost = this.#waiting[0].body.length + COST_OF_A_SEGMENT;
      let held = 0;
      for (const segment of this.#underway.values()) held += segment.cost;
      if (held > 0 && held + cost > this.#credit) return;
      const { body, until, onPut, onTaken, onFailed } = this.#waiting.shift();
      const timeout = (until - performance.now()) / 1000; // what is left of it
      if (timeout <= 0) {
        onFailed(new BmgdError("UnreachableError", "it could not be sent in time", { sent: false }));
        continue;
      }
      const number = this.#next++;
      this.#underway.set(number, { cost, onTaken, onFailed });
      this.#connection.write(Kind.SEGMENT, this.#number, 1, 0, 0, timeout, body);
      onPut();
    }
  }
}

function tooLong(message) {
  if (message.length <= MESSAGE_BYTES_MAX) return null;
  return new BmgdError("RequestError", `at most ${MESSAGE_BYTES_MAX} bytes can be sent`, { sent: false });
}
