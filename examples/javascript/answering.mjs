// Answers to the questions that come to one topic.
//
// Theory of operation. Questions come by `read`, each with the inbox of its asker. The answers to one inbox
// share a stream of `answers`. A question is consumed when its answer was put; what has none when this
// program ends is told to its asker by the daemon.

import { Kind } from "./frames.mjs";
import { Incoming, Outcome, answerTo } from "./incoming.mjs";
import { MESSAGE_BYTES_MAX, Outgoing } from "./outgoing.mjs";

const CREDIT = 256;
const CREDIT_BYTES = 1 << 20;
const ANSWER_S = 60; // an answer may wait so long for its stream
const ANSWER_BYTES_MAX = MESSAGE_BYTES_MAX - answerTo(0, Outcome.ANSWER, Buffer.alloc(0)).length;
const REASON_BYTES_MAX = 4096;

export class Answering {
  #connection;
  #incoming;
  #topic;
  #answerTo;
  #number = 0;
  #streams = new Map(); // "source incarnation inbox" -> Outgoing
  #underway = new Set(); // of promises, one for each answer

  /** Done when no further question comes: with the error, or null where there is none. */
  ended;

  #end;

  constructor(connection, topic, answerTo) {
    this.ended = new Promise((resolve) => (this.#end = resolve));
    this.#connection = connection;
    this.#incoming = new Incoming(connection);
    this.#topic = topic;
    this.#answerTo = answerTo;
  }

  /** Done when the topic has this reader. */
  async begin() {
    const parameters = { topic: this.#topic, credit: CREDIT, credit_bytes: CREDIT_BYTES };
    const { number, answer } = this.#connection.open("read", parameters, this);
    this.#number = number;
    await answer;
  }

  /** Done when the answers given until now are with their askers, or cannot be. */
  async flush() {
    await Promise.all(this.#underway);
  }

  onItem(item) {
    const messages = this.#incoming.messagesOf(this.#number, item);
    messages.forEach((message, index) => this.#answer(item, message, index));
  }

  onEnd(error) {
    this.#end(error);
  }

  async #answer(item, message, index) {
    let outcome = Outcome.ANSWER;
    let rest;
    try {
      rest = Buffer.from(await this.#answerTo(message, item.source));
      if (rest.length > ANSWER_BYTES_MAX) throw new RangeError(`the answer has more than ${ANSWER_BYTES_MAX} bytes`);
    } catch (error) {
      outcome = Outcome.FAILED;
      rest = Buffer.from(String(error?.message ?? error)).subarray(0, REASON_BYTES_MAX);
    }
    if (item.inbox !== undefined) this.#put(item, answerTo(BigInt(item.question) + BigInt(index), outcome, rest));
    if (item.count) this.#connection.write(Kind.CONSUMED, this.#number, 1);
  }

  #put(item, answer) {
    const stream = this.#streamTo(item);
    const taken = new Promise((resolve) => {
      // It fails where the asker is gone or has given up: nobody is there to be told.
      stream.send(answer, ANSWER_S, { onTaken: resolve, onFailed: resolve });
    });
    this.#underway.add(taken);
    taken.then(() => {
      this.#underway.delete(taken);
      this.#release(item, stream);
    });
  }

  // A stream is kept while something is underway: a connection has 1024 at most, and each asker wants one.
  #release(item, stream) {
    const key = keyOf(item);
    if (!stream.idle || this.#streams.get(key) !== stream) return;
    this.#streams.delete(key);
    if (!stream.over) stream.close();
  }

  #streamTo(item) {
    const { source, incarnation, inbox } = item;
    const key = keyOf(item);
    const known = this.#streams.get(key);
    if (known && !known.over) return known;
    const parameters = { destination: source, incarnation, inbox, reader: this.#number };
    const stream = new Outgoing(this.#connection, "answers", parameters);
    this.#streams.set(key, stream);
    return stream;
  }
}

function keyOf({ source, incarnation, inbox }) {
  return `${source} ${incarnation} ${inbox}`;
}
