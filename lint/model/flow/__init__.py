"""Where values go in a program: to a loss, to nobody, before or after something else."""
