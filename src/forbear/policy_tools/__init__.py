"""Policy tools: the cost and the sources of a policy, loaded when asked for."""
