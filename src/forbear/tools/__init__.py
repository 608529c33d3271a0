"""Tools: programs made of forbear; nothing imports them. Floor: acts."""
