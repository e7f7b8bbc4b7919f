"""Reading a program in the order it runs: statements, expressions and calls, followed into functions."""
