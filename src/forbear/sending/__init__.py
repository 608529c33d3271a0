"""Sending: the loops, and what they need of every library. Floor: acts."""
