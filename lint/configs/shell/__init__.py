"""Scripts of the shell and of make: the commands that they run, with what their variables hold."""
