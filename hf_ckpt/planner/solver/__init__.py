"""The cheapest plan within byte limits, by mixed-integer linear programming. Pure."""
