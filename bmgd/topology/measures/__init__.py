"""What the papers measure of a graph, by definition: searches, flows and schedules, no formulas.

`sizes` has degree and links, and what is made of them; `distances` diameter and average distance;
`broadcasts` the steps of a broadcast; `connectivity` node and link connectivity; `separators` the
fault sets that disconnect; `faults` the fault diameter; `bisection` the bisection width.
"""
