// A stream of messages out of this program: the sink of `questions` and `answers`.
//
// Theory of operation. Each message is a SEGMENT of its own, numbered from 1. A SEGMENT is put when its cost
// fits into the credit, or when all before it are done; until then it waits here. An ITEM says below which
// number all are done, which of them were not taken, and what the credit is now.

import { Kind } from "./frames.mjs";
import { encode } from "./msgpack.mjs";

const COST_OF_A_SEGMENT = 256; // beside the bytes of its body

export class Outgoing {
  #connection;
  #onOver;
  #number = 0;
  #credit = 0;
  #next = 1; // the number of the next SEGMENT
  #waiting = []; // { body, timeout, onPut, onTaken, onFailed }
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
      this.#credit = value.credit;
      this.#serve();
      return value;
    });
    this.opened.catch((error) => this.onEnd(error));
  }

  get over() {
    return this.#error !== null;
  }

  /**
   * Send one message. `onPut` is called when it leaves this program; then `onTaken` when the other daemon
   * has it, or `onFailed(error)` when that is not known.
   */
  send(message, timeout, { onPut = () => {}, onTaken = () => {}, onFailed }) {
    if (this.#error) return onFailed(this.#error);
    this.#waiting.push({ body: encode(message), timeout, onPut, onTaken, onFailed });
    this.#serve();
  }

  onEnd(error) {
    this.#error = error ?? new Error("the stream is closed");
    for (const { onFailed } of [...this.#underway.values(), ...this.#waiting]) onFailed(this.#error);
    this.#underway.clear();
    this.#waiting = [];
    this.#onOver(this.#error);
  }

  onItem({ next, credit, withdrawn = [], doubted = [], error = "", detail = "" }) {
    for (const number of [...withdrawn, ...doubted]) {
      const failure = Object.assign(new Error(detail), { name: error, sent: doubted.includes(number) });
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
    if (this.#credit === 0) return; // not open yet
    while (this.#waiting.length) {
      const cost = this.#waiting[0].body.length + COST_OF_A_SEGMENT;
      let held = 0;
      for (const segment of this.#underway.values()) held += segment.cost;
      if (held > 0 && held + cost > this.#credit) return;
      const { body, timeout, onPut, onTaken, onFailed } = this.#waiting.shift();
      const number = this.#next++;
      this.#underway.set(number, { cost, onTaken, onFailed });
      this.#connection.write(Kind.SEGMENT, this.#number, 1, 0, 0, timeout, body);
      onPut();
    }
  }
}
