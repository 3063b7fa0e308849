"""A second reader of the wire protocol, written from docs/wire-protocol.md and from nothing else.

Both ends of a simulated link use `bmgd.wire`: a mistake made on both sides would not be seen. What is
here shares no line with it. `packed.py` has msgpack's values, `values.py` the types of fields, and
`frames.py` the fields of each kind.
"""
