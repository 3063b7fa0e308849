"""The routing algorithms of the papers, as the papers state them: for reading and for comparison.

The daemon uses none of them: its next hops are exact, see `bmgd.topology.distance`. Here each
algorithm has a module of its own with

    hop_count(n, distance, ...)    the hops that a message takes, or that the algorithm estimates
    first_hop(n, distance, ...)    the jump to make first, to be added to the own rank modulo n

where n is the size of the graph, and the distance is the destination's rank minus the own one
modulo n. A binomial graph looks the same from every rank, so a distance says everything.

    breadth_first      Routing §2.1    optimal, by search; its table with ordered alternatives
    basic              Routing §2.2    the neighbor closest to the destination
    variant            Routing §2.3    a neighbor that links the destination, first
    bit_counting       Routing §3.1    the bits of the distance, in the better direction
    bit_elimination    Routing §3.2    the same after consecutive bits were turned into two jumps
    equivalence_class  Routing §3.3    the same for the distance and l more loops around the ring
    undirected_chord   Routing §1      optimal where the size is a power of two

The section "papers" of bmgd/_labroutes.c is the same in C; `survey` chooses between them.
"""
