"""What the planner decides over, and what a decision costs in bytes and seconds. Pure."""
