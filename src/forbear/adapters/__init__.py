"""Adapters: one port for each library and colour. Floor: acts."""
