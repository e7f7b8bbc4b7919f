"""What is noted of a run while it goes, for the checks to judge: calls, forwards, generations, gradients, switches."""
