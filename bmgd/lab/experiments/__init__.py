"""The experiments, one module per table or figure or small group of them.

Each module ends with `EXPERIMENTS`, a tuple; `bmgd.lab.registry` lists the modules.
"""
