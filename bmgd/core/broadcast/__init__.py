"""Messages to many: multicasts, broadcasts to all or none, and the registry of programs.

What a life is owed of a source's reliable broadcasts is one rule, in four places: `window.py` says whom
one is for, `peers.py` what a node *skips*, `retention.py` with `delivery.py` what it makes of that, and
`announcements.py` what its readers see. To skip is to not wait for it; what is skipped is *missed* where
programs are to hear of it.

A broadcast is for who lives when it is numbered. All records of one notice are believed before the source
hears of any: what the first of them lets go is for who lives by the last. Below, L is the life that the
source hears of, and `following` is the first number for L that was sent since L was believed.

    what the source knew of the id               skips, not missed    skips, missed
    alive, as L; or nothing was acknowledged     nothing              nothing
    held dead as L, gone at g                    nothing              up to stable, what L lacks;
                                                                      and g .. following - 1
    alive, as a former life; L was linked first  nothing              nothing
    dead or left as that, or left as no life;    nothing              as who was held dead as L
        L was linked first
    held dead; it is a founder's first life      nothing              the same: that was a mistake
    alive or held dead, as another life          1 .. following - 1   nothing
    nothing: L joins                             1 .. following - 1   nothing
    left; L is a later life                      1 .. following - 1   nothing
    any of the last three; L is heard of dead    1 .. next - 1        when it is back: as held dead
    L acknowledges before its record comes       1 .. next - 1        what is sent until that comes
    alive, as a later life that acknowledged     1 .. stable          nothing
    L has not got a piece that is given up       nothing              that one

So a life that begins has missed nothing of what was before it, whoever tells it. A broadcast that is not
acknowledged by who began a new life is reported as that; the new life may get it all the same. So is what
a node had not acknowledged when it was known to have left: if it is back, it misses that, and says so by
its watermark.

    how a node hears that it skips something     its readers
    `Skipped`, which names the life              miss what it says
    a copy, which names ids and no life          the same; but where a former life of this node may be
                                                 meant, what is missed waits for `Skipped`
    nobody says: it is not in the audience; or   miss it, if this life was there before: it was given
    its source is gone, and neighbors know it    something of the source, or told of skips, or is a
    to be stable, or gave it up                  founder's first, or refuted its death. Else they see
                                                 nothing, unless it refutes its death within 10 s
    any, once readers were given something       miss it: they would see a hole

A reader is told of what is missed when its topic carries reliable broadcasts, else before the first one
that it carries. Nobody asks a source that is gone; what neighbors have of it is for all that lack it.
"""
