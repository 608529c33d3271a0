"""Policy tools: what a policy may cost, and where it comes from. Loaded when asked for. Floor: acts."""
