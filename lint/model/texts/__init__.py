"""Texts that a program computes with: names of parameters, and the tests that they pass."""
