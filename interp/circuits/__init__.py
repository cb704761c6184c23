"""Circuits: the model as a graph of nodes and edges, patched edge by edge, scored, pruned, judged and broken."""
