"""Reads the traces of other tools: `read.read_traces` takes any of them."""
