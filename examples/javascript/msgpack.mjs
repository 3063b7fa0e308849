// The part of msgpack that the control protocol uses: nil, bool, int, float, str, bin, array, map.
//
// Integers beyond 2^53 come and go as BigInt, `bin` as Buffer, maps as plain objects.

const HALF = 2n ** 32n;

/** The bytes of a value. Numbers without a fraction become integers, all others float 64. */
export function encode(value) {
  const parts = [];
  write(value, parts);
  return Buffer.concat(parts);
}

function write(value, parts) {
  if (value === null || value === undefined) parts.push(Buffer.of(0xc0));
  else if (typeof value === "boolean") parts.push(Buffer.of(value ? 0xc3 : 0xc2));
  else if (typeof value === "bigint" || Number.isSafeInteger(value)) parts.push(integer(BigInt(value)));
  else if (typeof value === "number") parts.push(float(value));
  else if (typeof value === "string") {
    const bytes = Buffer.from(value, "utf8");
    parts.push(bytes.length < 32 ? Buffer.of(0xa0 | bytes.length) : sized(bytes.length, [0xd9, 0xda, 0xdb]), bytes);
  } else if (value instanceof Uint8Array) parts.push(sized(value.length, [0xc4, 0xc5, 0xc6]), Buffer.from(value));
  else if (Array.isArray(value)) {
    parts.push(value.length < 16 ? Buffer.of(0x90 | value.length) : sized(value.length, [null, 0xdc, 0xdd]));
    for (const element of value) write(element, parts);
  } else if (typeof value === "object") {
    const pairs = Object.entries(value);
    parts.push(pairs.length < 16 ? Buffer.of(0x80 | pairs.length) : sized(pairs.length, [null, 0xde, 0xdf]));
    for (const [key, element] of pairs) {
      write(key, parts);
      write(element, parts);
    }
  } else throw new TypeError(`msgpack has no ${typeof value}`);
}

/** A type byte of one, two or four bytes of length, and the length. */
function sized(length, [one, two, four]) {
  if (one !== null && length < 0x100) return Buffer.of(one, length);
  const head = Buffer.alloc(length < 0x10000 ? 3 : 5);
  head[0] = length < 0x10000 ? two : four;
  if (length < 0x10000) head.writeUInt16BE(length, 1);
  else head.writeUInt32BE(length, 1);
  return head;
}

function integer(value) {
  if (value >= -32n && value < 128n) return Buffer.of(Number(value) & 0xff);
  if (value >= 0n && value < HALF) {
    const head = Buffer.alloc(5, 0xce);
    head.writeUInt32BE(Number(value), 1);
    return head;
  }
  const head = Buffer.alloc(9, value < 0n ? 0xd3 : 0xcf);
  if (value < 0n) head.writeBigInt64BE(value, 1);
  else head.writeBigUInt64BE(value, 1);
  return head;
}

function float(value) {
  const head = Buffer.alloc(9, 0xcb);
  head.writeDoubleBE(value, 1);
  return head;
}

/** All values that lie in `bytes`, one behind the other. Throws RangeError where one is cut short. */
export function decodeAll(bytes) {
  const reader = new Reader(bytes);
  const values = [];
  while (reader.at < bytes.length) values.push(reader.value());
  return values;
}

/** The one value that `bytes` is. */
export function decode(bytes) {
  const values = decodeAll(bytes);
  if (values.length !== 1) throw new RangeError(`${values.length} values, not one`);
  return values[0];
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  value() {
    const type = this.unsigned(1);
    if (type < 0x80) return type;
    if (type < 0x90) return this.map(type & 0x0f);
    if (type < 0xa0) return this.array(type & 0x0f);
    if (type < 0xc0) return this.text(type & 0x1f);
    if (type >= 0xe0) return type - 0x100;
    switch (type) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return this.take(this.unsigned(1 << (type - 0xc4)));
      case 0xca: return this.take(4).readFloatBE();
      case 0xcb: return this.take(8).readDoubleBE();
      case 0xcc: case 0xcd: case 0xce: return this.unsigned(1 << (type - 0xcc));
      case 0xcf: return narrow(this.take(8).readBigUInt64BE());
      case 0xd0: return this.take(1).readInt8();
      case 0xd1: return this.take(2).readInt16BE();
      case 0xd2: return this.take(4).readInt32BE();
      case 0xd3: return narrow(this.take(8).readBigInt64BE());
      case 0xd9: case 0xda: case 0xdb: return this.text(this.unsigned(1 << (type - 0xd9)));
      case 0xdc: case 0xdd: return this.array(this.unsigned(2 << (type - 0xdc)));
      case 0xde: case 0xdf: return this.map(this.unsigned(2 << (type - 0xde)));
      default: throw new RangeError(`type 0x${type.toString(16)} does not occur here`);
    }
  }

  take(count) {
    if (this.at + count > this.bytes.length) throw new RangeError("a value is cut short");
    this.at += count;
    return this.bytes.subarray(this.at - count, this.at);
  }

  unsigned(count) {
    return this.take(count).readUIntBE(0, count);
  }

  text(count) {
    return this.take(count).toString("utf8");
  }

  array(count) {
    const elements = [];
    for (let i = 0; i < count; i++) elements.push(this.value());
    return elements;
  }

  map(count) {
    const pairs = [];
    for (let i = 0; i < count; i++) pairs.push([this.value(), this.value()]);
    return Object.fromEntries(pairs);
  }
}

function narrow(value) {
  return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}
