// Answers to the questions that come to one topic.
//
// Theory of operation. Questions come by `read`, each with the inbox of its asker. The answers to one inbox
// share a stream of `answers`. A question is consumed when its answer was put; what has none when this
// program ends is told to its asker by the daemon.

import { Kind } from "./frames.mjs";
import { Incoming, Outcome, answerTo } from "./incoming.mjs";
import { Outgoing } from "./outgoing.mjs";

const CREDIT = 256;
const CREDIT_BYTES = 1 << 20;
const ANSWER_S = 60; // an answer may wait so long for its stream

export class Answering {
  #connection;
  #incoming;
  #topic;
  #answerTo;
  #number = 0;
  #streams = new Map(); // "source incarnation inbox" -> Outgoing
  #underway = new Set(); // of promises, one for each answer

  constructor(connection, topic, answerTo) {
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

  onEnd() {}

  async #answer(item, message, index) {
    let outcome = Outcome.ANSWER;
    let rest;
    try {
      rest = await this.#answerTo(message, item.source);
    } catch (error) {
      outcome = Outcome.FAILED;
      rest = Buffer.from(error.message);
    }
    if (item.inbox !== undefined) {
      const answer = answerTo(BigInt(item.question) + BigInt(index), outcome, rest);
      const taken = new Promise((resolve) => {
        // It fails where the asker is gone or has given up: nobody is there to be told.
        this.#streamTo(item).send(answer, ANSWER_S, { onTaken: resolve, onFailed: resolve });
      });
      this.#underway.add(taken);
      taken.then(() => this.#underway.delete(taken));
    }
    if (item.count) this.#connection.write(Kind.CONSUMED, this.#number, 1);
  }

  #streamTo({ source, incarnation, inbox }) {
    const key = `${source} ${incarnation} ${inbox}`;
    const known = this.#streams.get(key);
    if (known && !known.over) return known;
    const parameters = { destination: source, incarnation, inbox, reader: this.#number };
    const stream = new Outgoing(this.#connection, "answers", parameters);
    this.#streams.set(key, stream);
    return stream;
  }
}
