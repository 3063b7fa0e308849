"""The parts of the client in JavaScript over a connection that a test plays."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "examples" / "javascript"
NODE = shutil.which("node") or shutil.which("nodejs")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
DEADLINE_S = 60.0

BEGIN = """
import assert from "node:assert/strict";
import { Answering } from "./answering.mjs";
import { Asking } from "./asking.mjs";
import { Connection } from "./connection.mjs";
import { Kind, Splitter, frame } from "./frames.mjs";
import { decode, decodeAll, encode } from "./msgpack.mjs";

const turn = () => new Promise((resolve) => setImmediate(resolve));
const made = { credit: 66000, first: 1, inbox: 1 };
const connection = {
  opened: [], written: [], next: 1,
  open(verb, parameters, sink) {
    const number = this.next++;
    this.opened.push({ verb, parameters, sink, number });
    return { number, answer: Promise.resolve(made) };
  },
  write(kind, number, ...elements) { this.written.push({ kind, number, elements }); },
};
const verbs = (verb) => connection.opened.filter((stream) => stream.verb === verb);
const written = (wanted) => connection.written.filter(({ kind }) => kind === wanted);
const segments = () => written(Kind.SEGMENT).map(({ elements }) => elements[4]);
const closed = () => written(Kind.CLOSE).map(({ number }) => number);
const question = (text, inbox = 1) => ({
  source: 1, incarnation: 5, topic: "rpc", count: 1, body: encode(Buffer.from(text)), inbox, question: 7,
});
"""


def carried_out(script: str) -> None:
    """Run a script of a test; it fails where an assertion of it does, or nothing settles."""
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", BEGIN + script],
        capture_output=True,
        cwd=HERE,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_javascript_closes_the_stream_to_an_asker_that_has_its_answers() -> None:
    carried_out(
        """
        const answering = new Answering(connection, "rpc", () => Buffer.from("a"));
        await answering.begin();
        for (let inbox = 1; inbox <= 3; inbox += 1) {
          answering.onItem(question("q", inbox));
          await turn();
          const { sink, number } = verbs("answers").at(-1);
          assert.deepEqual(closed().includes(number), false);
          sink.onItem({ next: 2, credit: 66000 });
          await turn();
          assert.deepEqual(closed().at(-1), number);
          sink.onEnd(null);
        }
        // One who comes again has another stream.
        answering.onItem(question("q", 1));
        await turn();
        assert.equal(verbs("answers").length, 4);
        """
    )


def test_javascript_tells_the_asker_what_went_wrong_with_its_answer() -> None:
    carried_out(
        """
        const outcomes = [
          () => undefined, () => { throw "a text"; }, () => Buffer.alloc(70000), () => "text",
          () => { throw new Error("not today"); },
        ];
        const answering = new Answering(connection, "rpc", () => outcomes.shift()());
        await answering.begin();
        const told = [];
        for (const _ of [...outcomes]) {
          answering.onItem(question("q"));
          await turn();
          const message = decode(segments().at(-1));
          assert.equal(message.length < 65536, true);
          told.push([message[0], message.subarray(9).toString()]);
        }
        assert.equal(told[0][0], 1);
        assert.deepEqual(told[1], [1, "a text"]);
        assert.deepEqual([told[2][0], /65527 bytes/.test(told[2][1])], [1, true]);
        assert.deepEqual(told.slice(3), [[0, "text"], [1, "not today"]]);
        assert.equal(connection.written.filter(({ kind }) => kind === Kind.CONSUMED).length, 5);
        """
    )


def test_javascript_answering_tells_when_it_is_over() -> None:
    carried_out(
        """
        const answering = new Answering(connection, "rpc", () => Buffer.from("a"));
        await answering.begin();
        const lost = new Error("the daemon ended the connection");
        answering.onEnd(lost);
        assert.equal(await answering.ended, lost);
        """
    )


def test_javascript_does_not_send_a_question_whose_time_is_over() -> None:
    carried_out(
        """
        const asking = new Asking(connection);
        const large = asking.ask(3, Buffer.alloc(60000), "rpc", 60);
        const late = asking.ask(3, Buffer.alloc(60000), "rpc", 0.01);
        const error = await late.catch((error) => error);
        assert.deepEqual([error.name, error.sent], ["UnreachableError", false]);
        const { sink } = verbs("questions")[0];
        sink.onItem({ next: 2, credit: 66000 });
        await turn();
        assert.equal(segments().length, 1);
        // The numbers of those that follow are right.
        const third = asking.ask(3, Buffer.from("x"), "rpc", 60);
        await turn();
        assert.equal(segments().length, 2);
        const head = Buffer.alloc(9);
        head[8] = 2;
        asking.onItem({ source: 3, count: 1, body: encode(Buffer.concat([head, Buffer.from("yes")])) });
        assert.equal((await third).toString(), "yes");
        process.exit(0);
        """
    )


def test_javascript_refuses_a_question_that_is_too_long() -> None:
    carried_out(
        """
        const asking = new Asking(connection);
        const error = await asking.ask(3, Buffer.alloc(65537), "rpc", 60).catch((error) => error);
        assert.deepEqual([error.name, error.sent], ["RequestError", false]);
        assert.equal(segments().length, 0);
        await turn();
        process.exit(0);
        """
    )


def test_javascript_says_by_name_why_the_daemon_ends_a_connection() -> None:
    carried_out(
        """
        const { EventEmitter } = await import("node:events");
        const socket = Object.assign(new EventEmitter(), { write() {}, destroy() {} });
        const own = new Connection(socket);
        const answer = own.request("status", {});
        socket.emit("data", frame(Kind.ERROR, 0, "RequestError", "1024 programs are connected", {}));
        const error = await answer.catch((error) => error);
        assert.deepEqual([error.name, error.message], ["RequestError", "1024 programs are connected"]);
        """
    )


def test_javascript_minds_the_time_and_its_limits_where_the_daemon_says_nothing(
    tmp_path: Path,
) -> None:
    carried_out(
        f"const path = {str(tmp_path / 'd.sock')!r};"
        """
        const { createServer } = await import("node:net");
        const { connect } = await import("./bmgd.mjs");
        const told = [];
        const server = createServer((socket) => {
          const splitter = new Splitter();
          socket.on("data", (chunk) => {
            for (const { sequence, elements } of splitter.feed(chunk)) {
              told.push(elements[0]);
              if (elements[0] === "hello") socket.write(frame(Kind.RESULT, sequence, { version: 1 }));
            }
          });
        });
        await new Promise((resolve) => server.listen(path, resolve));
        const daemon = await connect(path);
        const outcome = (promise) => promise.then(() => null, ({ name, sent }) => [name, sent]);
        const refused = ["RequestError", false];
        for (const timeout of [0, -1, NaN, Infinity, 86401, "2"]) {
          const options = { topic: "t", timeout };
          assert.deepEqual(await outcome(daemon.request(1, "q", options)), refused);
          assert.deepEqual(await outcome(daemon.send(1, "q", options)), refused);
        }
        for (const destination of [-1, 1.5, NaN, "x", undefined]) {
          assert.deepEqual(await outcome(daemon.send(destination, "q", { topic: "t" })), refused);
        }
        assert.deepEqual(told, ["hello"]);
        const late = daemon.request(1n, "q", { topic: "t", timeout: 0.05 });
        assert.deepEqual(await outcome(late), ["UnreachableError", false]);
        assert.deepEqual(told, ["hello", "inbox"]);
        process.exit(0);
        """
    )


def test_javascript_reads_what_a_daemon_should_not_say() -> None:
    carried_out(
        """
        const { BmgdError } = await import("./connection.mjs");
        const fields = { name: "x", message: "y", destination: 3 };
        const error = new BmgdError("DeadError", "it is dead", fields);
        assert.deepEqual([error.name, error.message, error.destination], ["DeadError", "it is dead", 3]);
        assert.equal(new BmgdError().name, "RequestError");
        const { EventEmitter } = await import("node:events");
        const socket = Object.assign(new EventEmitter(), { write() {}, destroy() {} });
        const answer = new Connection(socket).request("status", {});
        socket.emit("data", frame(Kind.ITEM, 9, {}));
        const ended = await answer.catch((error) => error);
        const why = "something of stream 9, which nobody opened";
        assert.deepEqual([ended.name, ended.message], ["ProtocolError", why]);
        """
    )


def test_javascript_gives_what_it_does_not_want_back_at_once() -> None:
    carried_out(
        """
        const { Items } = await import("./items.mjs");
        const consumed = [];
        const items = new Items((item) => consumed.push(item), () => {}, (item) => item > 1);
        for (const item of [1, 2, 1]) items.onItem(item);
        assert.deepEqual(consumed, [1, 1]);
        assert.deepEqual(await items.next(), { done: false, value: 2 });
        items.consumed();
        assert.deepEqual(consumed, [1, 1, 2]);
        """
    )
